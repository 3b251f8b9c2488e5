//! Finds the systemd unit to which a cgroup belongs, by the path of the cgroup. For example,
//! `/system.slice/docker-0123.scope` belongs to the unit `docker-0123.scope`.

use std::fmt;
use std::path::{Component, Path};

/// The types of systemd units that have cgroups. Each item contains the suffix of the unit's name,
/// and the D-Bus interface with the properties `DevicePolicy` and `DeviceAllow` of the unit.
const UNIT_TYPES: &[(&str, &str)] = &[
    ("slice", "org.freedesktop.systemd1.Slice"),
    ("scope", "org.freedesktop.systemd1.Scope"),
    ("service", "org.freedesktop.systemd1.Service"),
    ("socket", "org.freedesktop.systemd1.Socket"),
    ("mount", "org.freedesktop.systemd1.Mount"),
    ("swap", "org.freedesktop.systemd1.Swap"),
];

/// A unit that the host's systemd manages, identified by its name, such as `docker-0123.scope`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    name: String,
    interface: &'static str,
}

impl Unit {
    /// Returns the unit to which the cgroup at `cgroup_path` belongs. Returns `None` if the first
    /// component of the path is not the name of a unit.
    ///
    /// Slices can contain other units, so the path begins with any number of slices. The unit is
    /// the first component that is not a slice: `/system.slice/docker.service/x` belongs to
    /// `docker.service`, because systemd does not manage the cgroups below it. If the path has only
    /// slices, the unit is the last one.
    pub(crate) fn from_path(cgroup_path: &Path) -> Option<Self> {
        let mut last_unit = None;
        for component in cgroup_path.components() {
            let name = match component {
                Component::RootDir => continue,
                Component::Normal(name) => name.to_str()?,
                _ => return None,
            };
            // If a unit's name looks like the name of a control file, as `cpu.service` does,
            // systemd puts `_` before the name of the unit's cgroup.
            let Some(unit) = Self::parse_name(name.strip_prefix('_').unwrap_or(name)) else {
                break;
            };
            let is_slice = unit.interface == UNIT_TYPES[0].1;
            last_unit = Some(unit);
            if !is_slice {
                break;
            }
        }
        last_unit
    }

    /// Returns the unit whose cgroup is exactly `cgroup_path`. Returns `None` if the path is below
    /// a unit's cgroup, because systemd does not manage such a cgroup.
    pub(crate) fn from_exact_path(cgroup_path: &Path) -> Option<Self> {
        let name = cgroup_path.file_name()?.to_str()?;
        let unit = Self::from_path(cgroup_path)?;
        let is_cgroup_of_unit = unit.name == name.strip_prefix('_').unwrap_or(name);
        is_cgroup_of_unit.then_some(unit)
    }

    /// Returns the unit with the name `name`. Returns `None` if systemd.unit(5) does not permit the
    /// name, or if units of its type have no cgroups.
    fn parse_name(name: &str) -> Option<Self> {
        let (stem, suffix) = name.rsplit_once('.')?;
        let (_, interface) = UNIT_TYPES.iter().find(|(kind, _)| *kind == suffix)?;
        let is_unit_character =
            |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
        let is_valid = !stem.is_empty() && name.len() <= 255 && stem.bytes().all(is_unit_character);
        is_valid.then(|| Self {
            name: name.to_owned(),
            interface,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn interface(&self) -> &'static str {
        self.interface
    }

    pub(super) fn object_path(&self) -> String {
        let mut path = String::from("/org/freedesktop/systemd1/unit/");
        for (index, byte) in self.name.bytes().enumerate() {
            if byte.is_ascii_alphabetic() || byte.is_ascii_digit() && index > 0 {
                path.push(byte.into());
            } else {
                path.push_str(&format!("_{byte:02x}"));
            }
        }
        path
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of cgroups, and the unit of each.
    const UNITS: &str = r"
/system.slice/docker-0123.scope -> docker-0123.scope
/kubepods.slice/kubepods-pod1.slice/cri-containerd-0123.scope -> cri-containerd-0123.scope
/machine.slice/libpod-1.scope/container -> libpod-1.scope
/system.slice/crun-1.scope/a.scope -> crun-1.scope
/user.slice/user-0.slice/user@0.service/app.slice/x.scope -> user@0.service
/kubepods.slice/kubepods-pod1.slice -> kubepods-pod1.slice
/kubepods.slice/by-hand/x.scope -> kubepods.slice
/system.slice/_cpu.service -> cpu.service
/system.slice/system-getty.slice/getty@tty1.service -> getty@tty1.service
/system.slice/dev-disk\x2d1.swap -> dev-disk\x2d1.swap
/init.scope -> init.scope
";

    #[test]
    fn finds_the_unit_of_a_cgroup() {
        for line in UNITS.trim().lines() {
            let (path, unit) = line.split_once(" -> ").unwrap();
            let found = Unit::from_path(Path::new(path));
            assert_eq!(found.as_ref().map(Unit::name), Some(unit), "{path}");
        }
        let long = format!("/{}.scope", "x".repeat(250));
        for path in [
            "/docker/0123",
            "/docker/0123.scope",
            "/.scope",
            "/a b.scope",
            "/../x.scope",
            "/",
            "",
            &long,
        ] {
            assert_eq!(Unit::from_path(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn what_is_delegated_to_a_unit_is_not_the_units_own() {
        for (path, unit) in [
            ("/system.slice/crun-1.scope", Some("crun-1.scope")),
            ("/system.slice/_cpu.service", Some("cpu.service")),
            ("/system.slice", Some("system.slice")),
            ("/system.slice/crun-1.scope/container", None),
            ("/system.slice/crun-1.scope/a.scope", None),
            ("/docker/0123.scope", None),
            ("/", None),
        ] {
            let found = Unit::from_exact_path(Path::new(path));
            assert_eq!(found.as_ref().map(Unit::name), unit, "{path}");
        }
    }

    #[test]
    fn escapes_object_paths() {
        for (name, path) in [
            ("docker-1.scope", "docker_2d1_2escope"),
            ("1a.slice", "_31a_2eslice"),
            ("a_b@c.service", "a_5fb_40c_2eservice"),
            (r"x\x2d.mount", "x_5cx2d_2emount"),
        ] {
            let unit = Unit::parse_name(name).unwrap();
            let expected = format!("/org/freedesktop/systemd1/unit/{path}");
            assert_eq!(unit.object_path(), expected);
        }
    }
}
