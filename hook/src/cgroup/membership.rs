//! Parses `/proc/PID/cgroup`, which lists the cgroup of a process in each hierarchy.
//!
//! A line has the format `ID:CONTROLLERS:PATH` (cgroups(7)). The line of cgroup v2 begins with
//! `0::`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hierarchy {
    /// The hierarchy of cgroup v1 with the `devices` controller. Its line in `/proc/PID/cgroup` is,
    /// for example, `5:devices:/docker/0123`.
    V1Devices,
    /// The only hierarchy of cgroup v2. Its line in `/proc/PID/cgroup` begins with `0::`.
    Unified,
}

/// Returns the path of a process's cgroup in `hierarchy`. `content` is the content of the process's
/// `/proc/PID/cgroup`. Returns `None` if the file has no line for the hierarchy.
pub(super) fn parse_cgroup_path(content: &[u8], hierarchy: Hierarchy) -> Option<&Path> {
    content.split(|byte| *byte == b'\n').find_map(|line| {
        // The line is split into at most three fields, because the last field, the path, may
        // contain colons.
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_line_of_hierarchy = match hierarchy {
            Hierarchy::Unified => id == b"0" && controllers.is_empty(),
            Hierarchy::V1Devices => controllers
                .split(|byte| *byte == b',')
                .any(|controller| controller == b"devices"),
        };
        is_line_of_hierarchy.then(|| Path::new(OsStr::from_bytes(path)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "12:devices:/kubepods/pod1/abc\n3:cpu,cpuacct:/a\n1:name=systemd:/b\n";
    const HYBRID: &str = "11:freezer,devices:/docker/x:y\n1:name=systemd:/b\n0::/system.slice\n";
    const V2: &str = "0::/system.slice/docker-abc.scope\n";

    #[test]
    fn finds_the_path_in_each_hierarchy() {
        use Hierarchy::*;
        for (content, hierarchy, expected) in [
            (V1, V1Devices, Some("/kubepods/pod1/abc")),
            (V1, Unified, None),
            (HYBRID, V1Devices, Some("/docker/x:y")),
            (HYBRID, Unified, Some("/system.slice")),
            (V2, Unified, Some("/system.slice/docker-abc.scope")),
            (V2, V1Devices, None),
            ("1:name=devices:/x\n", V1Devices, None),
            ("0::/../..\n", Unified, Some("/../..")),
            ("", Unified, None),
            ("0:\n\n::\n", Unified, None),
        ] {
            let found = parse_cgroup_path(content.as_bytes(), hierarchy);
            assert_eq!(
                found,
                expected.map(Path::new),
                "{hierarchy:?} in {content:?}"
            );
        }
    }
}
