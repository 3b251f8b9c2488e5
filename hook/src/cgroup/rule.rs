//! One rule: a device, by number, and what may be done with it.

use std::fmt;

pub use device_class::host::DeviceKind;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use super::error::RuleError;

/// What may be done with a device; never nothing.
///
/// The bits are those of the kernel's `BPF_DEVCG_ACC_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Create a node with the device's number.
    pub const MKNOD: Self = Self(1);
    /// Open for reading.
    pub const READ: Self = Self(2);
    /// Open for writing.
    pub const WRITE: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// Reads a combination of the letters `r`, `w` and `m`.
    ///
    /// # Errors
    ///
    /// [`RuleError::BadAccess`] for other letters, or none.
    pub fn parse(letters: &str) -> Result<Self, RuleError> {
        let bad = || RuleError::BadAccess(letters.to_owned());
        letters
            .chars()
            .map(|letter| Self::of_letter(letter).ok_or_else(bad))
            .reduce(|a, b| Ok(a?.union(b?)))
            .unwrap_or_else(|| Err(bad()))
    }

    /// What one letter stands for.
    pub(super) fn of_letter(letter: char) -> Option<Self> {
        match letter {
            'r' => Some(Self::READ),
            'w' => Some(Self::WRITE),
            'm' => Some(Self::MKNOD),
            _ => None,
        }
    }

    /// What either of the two admits.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `other` asks for nothing that is not in `self`.
    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The bits, as device programs see them.
    pub(super) fn bits(self) -> u8 {
        self.0
    }

    /// Everything that can be asked for at once with this access.
    pub(super) fn subsets(self) -> impl Iterator<Item = Self> {
        (1..=Self::ALL.0)
            .map(Self)
            .filter(move |subset| self.contains(*subset))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [(Self::READ, "r"), (Self::WRITE, "w"), (Self::MKNOD, "m")];
        letters
            .iter()
            .filter(|(access, _)| self.contains(*access))
            .try_for_each(|(_, letter)| f.write_str(letter))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({self})")
    }
}

/// Allows one device.
///
/// Written as the kernel's v1 control files have it: `c 10:183 rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceRule {
    kind: DeviceKind,
    major: u32,
    minor: u32,
    access: Access,
}

impl DeviceRule {
    /// Highest major number (`MINORBITS` is 20 of 32 bits, `include/linux/kdev_t.h`).
    pub const MAX_MAJOR: u32 = (1 << 12) - 1;
    /// Highest minor number.
    pub const MAX_MINOR: u32 = (1 << 20) - 1;

    /// A rule that allows `access` to the device.
    ///
    /// # Errors
    ///
    /// [`RuleError::NoSuchNumber`] if Linux has no such device numbers.
    pub fn new(
        kind: DeviceKind,
        major: u32,
        minor: u32,
        access: Access,
    ) -> Result<Self, RuleError> {
        if major > Self::MAX_MAJOR || minor > Self::MAX_MINOR {
            return Err(RuleError::NoSuchNumber {
                major: major.into(),
                minor: minor.into(),
            });
        }
        Ok(Self {
            kind,
            major,
            minor,
            access,
        })
    }

    /// The device's kind.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// The device's major number.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The device's minor number.
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// What is allowed.
    pub fn access(&self) -> Access {
        self.access
    }

    fn same_device(&self, other: &Self) -> bool {
        (self.kind, self.major, self.minor) == (other.kind, other.major, other.minor)
    }
}

impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Character => 'c',
        };
        write!(f, "{kind} {}:{} {}", self.major, self.minor, self.access)
    }
}

impl TryFrom<&LinuxDeviceCgroup> for DeviceRule {
    type Error = RuleError;

    /// Takes a rule that allows exactly one device.
    fn try_from(rule: &LinuxDeviceCgroup) -> Result<Self, RuleError> {
        if !rule.allow() {
            return Err(RuleError::Denies(rule.to_string()));
        }
        let kind = match rule.typ() {
            Some(LinuxDeviceType::B) => DeviceKind::Block,
            // `u`, unbuffered, is mknod(1)'s other word for a character device.
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => DeviceKind::Character,
            _ => return Err(RuleError::NotExact(rule.to_string())),
        };
        let (Some(major @ 0..), Some(minor @ 0..)) = (rule.major(), rule.minor()) else {
            return Err(RuleError::NotExact(rule.to_string()));
        };
        let (Ok(major), Ok(minor)) = (major.try_into(), minor.try_into()) else {
            return Err(RuleError::NoSuchNumber { major, minor });
        };
        let access = Access::parse(rule.access().as_deref().unwrap_or_default())?;
        Self::new(kind, major, minor, access)
    }
}

/// One rule per device. A request for `rw` has to find both letters in one rule.
pub(super) fn merge(rules: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut merged: Vec<DeviceRule> = Vec::with_capacity(rules.len());
    for rule in rules {
        match merged.iter_mut().find(|known| known.same_device(rule)) {
            Some(known) => known.access = known.access.union(rule.access),
            None => merged.push(*rule),
        }
    }
    merged
}

#[cfg(test)]
impl DeviceRule {
    /// A rule for a misc device, for tests.
    pub(super) fn misc(minor: u32, access: &str) -> Self {
        let access = Access::parse(access).unwrap();
        DeviceRule::new(DeviceKind::Character, 10, minor, access).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oci(json: &str) -> LinuxDeviceCgroup {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn reads_and_writes_access() {
        for (letters, canonical) in [("r", "r"), ("rw", "rw"), ("mwr", "rwm"), ("rr", "r")] {
            assert_eq!(Access::parse(letters).unwrap().to_string(), canonical);
        }
        for letters in ["", "x", "rwx", "R", "r w"] {
            assert_eq!(
                Access::parse(letters),
                Err(RuleError::BadAccess(letters.to_owned()))
            );
        }
    }

    #[test]
    fn subsets_are_every_request_that_the_access_covers() {
        let subsets = |letters| -> Vec<String> {
            let access = Access::parse(letters).unwrap();
            access.subsets().map(|access| access.to_string()).collect()
        };
        assert_eq!(subsets("r"), ["r"]);
        assert_eq!(subsets("rw"), ["r", "w", "rw"]);
        assert_eq!(subsets("rwm").len(), 7);
    }

    #[test]
    fn takes_exact_rules_of_the_spec() {
        for (json, line) in [
            (
                r#"{"allow":true,"type":"c","major":10,"minor":183,"access":"rw"}"#,
                "c 10:183 rw",
            ),
            (
                r#"{"allow":true,"type":"u","major":10,"minor":183,"access":"r"}"#,
                "c 10:183 r",
            ),
            (
                r#"{"allow":true,"type":"b","major":4095,"minor":1048575,"access":"rwm"}"#,
                "b 4095:1048575 rwm",
            ),
        ] {
            let rule = DeviceRule::try_from(&oci(json)).unwrap();
            assert_eq!(rule.to_string(), line);
        }
    }

    #[test]
    fn refuses_rules_for_more_or_less_than_one_device() {
        for (json, reason) in [
            (
                r#"{"allow":false,"type":"c","major":1,"minor":3,"access":"r"}"#,
                "denies",
            ),
            (
                r#"{"allow":true,"type":"a","major":1,"minor":3,"access":"r"}"#,
                "does not name",
            ),
            (
                r#"{"allow":true,"major":1,"minor":3,"access":"r"}"#,
                "does not name",
            ),
            (
                r#"{"allow":true,"type":"p","major":1,"minor":3,"access":"r"}"#,
                "does not name",
            ),
            (
                r#"{"allow":true,"type":"c","minor":3,"access":"r"}"#,
                "does not name",
            ),
            (
                r#"{"allow":true,"type":"c","major":1,"minor":-1,"access":"r"}"#,
                "does not name",
            ),
            (
                r#"{"allow":true,"type":"c","major":4096,"minor":3,"access":"r"}"#,
                "4096:3",
            ),
            (
                r#"{"allow":true,"type":"c","major":1,"minor":1048576,"access":"r"}"#,
                "1:1048576",
            ),
            (
                r#"{"allow":true,"type":"c","major":4294967296,"minor":3,"access":"r"}"#,
                "4294967296",
            ),
            (
                r#"{"allow":true,"type":"c","major":1,"minor":3}"#,
                "combination",
            ),
            (
                r#"{"allow":true,"type":"c","major":1,"minor":3,"access":"q"}"#,
                "combination",
            ),
        ] {
            let error = DeviceRule::try_from(&oci(json)).unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }

    #[test]
    fn merges_rules_for_the_same_device() {
        let rule = |kind, minor, access| {
            DeviceRule::new(kind, 10, minor, Access::parse(access).unwrap()).unwrap()
        };
        let merged = merge(&[
            rule(DeviceKind::Character, 1, "r"),
            rule(DeviceKind::Character, 2, "r"),
            rule(DeviceKind::Block, 1, "m"),
            rule(DeviceKind::Character, 1, "w"),
        ]);
        let lines: Vec<_> = merged.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["c 10:1 rw", "c 10:2 r", "b 10:1 m"]);
    }
}
