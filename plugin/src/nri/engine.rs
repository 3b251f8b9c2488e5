//! What an engine can do, by the name and version that it reports.

use nri_api::{CREATE_CONTAINER, ConfigureRequest, VALIDATE_CONTAINER_ADJUSTMENT};

/// The engines that accept hooks for containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Containerd,
    CriO,
}

/// The engine at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Engine {
    pub(super) family: Family,
    /// Whether it has NRI 0.10: then it has the final adjustment validated, and
    /// keeps device rules without nodes. Before, it drops them silently.
    pub(super) has_0_10: bool,
}

/// The engine does not accept hooks.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine `{name}` is not known to accept hooks by NRI; supported are containerd and CRI-O"
)]
pub(super) struct UnknownEngine {
    name: String,
}

/// The versions that have NRI 0.10: of NRI itself, and the first ones of the engines.
const NRI: Version = Version(0, 10);
const CONTAINERD: Version = Version(2, 2);
const CRI_O: Version = Version(1, 34);

/// Major and minor version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl Version {
    /// The version in a text such as `v2.1.9`, `2.2.0~ds1` or `1.34.0-dev`. A
    /// release that is not out yet (`-rc.0`, `-dev`) counts as the one before, which
    /// can do less; so does a text without a version.
    fn of(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('v');
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (numbers, rest) = text.split_at(end.unwrap_or(text.len()));
        let mut numbers = numbers.split('.').map(str::parse);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let is_first = numbers.next().is_none_or(|patch| patch == Ok(0));
        match rest.starts_with('-') && is_first {
            true => Some(Version(major, minor.checked_sub(1)?)),
            false => Some(Version(major, minor)),
        }
    }
}

impl Engine {
    /// The engine that asks to be configured.
    pub(super) fn of(request: &ConfigureRequest) -> Result<Self, UnknownEngine> {
        let (family, first) = match request.runtime_name.as_str() {
            "containerd" => (Family::Containerd, CONTAINERD),
            "cri-o" | "crio" => (Family::CriO, CRI_O),
            name => return Err(UnknownEngine { name: name.into() }),
        };
        let at_least = |text, first| Version::of(text).is_some_and(|version| version >= first);
        let has_0_10 = match request.nri_version.as_str() {
            "" => at_least(&request.runtime_version, first),
            nri => at_least(nri, NRI),
        };
        Ok(Engine { family, has_0_10 })
    }

    /// The events to subscribe to. One that the engine does not know would end the
    /// connection.
    pub(super) fn events(self) -> i32 {
        match self.has_0_10 {
            true => CREATE_CONTAINER | VALIDATE_CONTAINER_ADJUSTMENT,
            false => CREATE_CONTAINER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_gets_only_the_events_of_its_version() {
        for (name, version, nri, validates) in [
            ("containerd", "v2.1.9", "", Some(false)),
            ("containerd", "2.1.9+unknown", "", Some(false)),
            ("containerd", "2.0.0", "", Some(false)),
            ("containerd", "2.2.0-rc.1", "", Some(false)),
            ("containerd", "2.2.0", "", Some(true)),
            ("containerd", "2.2.1-rc.0", "", Some(true)),
            ("containerd", "2.3.0~ds1", "v0.12.0", Some(true)),
            ("containerd", "v2.4.0-beta.0", "v0.12.1", Some(true)),
            ("containerd", "unknown", "0.9.0", Some(false)),
            ("containerd", "", "", Some(false)),
            ("containerd", "2", "", Some(false)),
            ("containerd", "99999999999.1.1", "", Some(false)),
            ("cri-o", "1.33.2", "", Some(false)),
            ("cri-o", "1.34.0-dev", "", Some(false)),
            ("cri-o", "1.34.0", "", Some(true)),
            ("docker", "29.2.0", "v0.11.0", None),
            ("", "2.2.0", "", None),
        ] {
            let request = ConfigureRequest {
                runtime_name: name.into(),
                runtime_version: version.into(),
                nri_version: nri.into(),
                ..ConfigureRequest::default()
            };
            let found = Engine::of(&request).ok();
            let events = found.map(|engine| engine.events());
            let wanted = validates.map(|validates| if validates { 0x2008 } else { 0x08 });
            assert_eq!(events, wanted, "{name} {version} {nri}");
        }
    }
}
