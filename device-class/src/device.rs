//! Device numbers and cgroup device rules. The kernel identifies each device by its number, and a
//! rule allows a container to access the device with this number.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    #[serde(rename = "type")]
    pub kind: DeviceKind,
    /// The major number, which identifies the driver. /proc/devices lists it.
    pub major: u32,
    /// The minor number, which identifies one device of the driver.
    pub minor: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeviceKind {
    /// A character device, such as most accelerators.
    #[serde(rename = "c")]
    Character,
    /// A block device, such as a disk.
    #[serde(rename = "b")]
    Block,
}

/// The operations on a device that a [`DeviceRule`] allows: reading, writing, creating a node of
/// the device, or several of them. The bits have the values of the kernel's constants
/// `BPF_DEVCG_ACC_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Access(u8);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("access `{0}` is not a combination of the letters r, w and m")]
pub struct AccessError(String);

/// A cgroup rule that allows a container to access one device. As text it has the format of cgroup
/// v1, such as `c 10:183 rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DeviceRule {
    #[serde(flatten)]
    pub number: DeviceNumber,
    pub access: Access,
}

impl DeviceKind {
    /// Parses the letter `b` (block) or `c` (character). `Display` writes the same letters, which
    /// cgroup v1 also uses in its device rules.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "b" => Some(DeviceKind::Block),
            "c" => Some(DeviceKind::Character),
            _ => None,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Character => "c",
            DeviceKind::Block => "b",
        })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:{}", self.kind, self.major, self.minor)
    }
}

impl Access {
    /// The permission to create a node of the device (mknod(2)).
    pub const MKNOD: Self = Self(1);
    pub const READ: Self = Self(2);
    pub const WRITE: Self = Self(4);
    pub const ALL: Self = Self(7);

    const ACCESS_LETTERS: [(Self, char); 3] =
        [(Self::READ, 'r'), (Self::WRITE, 'w'), (Self::MKNOD, 'm')];

    /// Parses a text of one or more of the letters `r`, `w` and `m`.
    pub fn parse(letters: &str) -> Result<Self, AccessError> {
        let new_error = || AccessError(crate::name::excerpt(letters));
        letters
            .chars()
            .map(|letter| Self::from_letter(letter).ok_or_else(new_error))
            .reduce(|a, b| Ok(a?.union(b?)))
            .unwrap_or_else(|| Err(new_error()))
    }

    /// Returns the operation that the letter `r`, `w` or `m` stands for, or `None` for any other
    /// character.
    pub fn from_letter(letter: char) -> Option<Self> {
        let pair = Self::ACCESS_LETTERS
            .iter()
            .find(|(_, known_letter)| *known_letter == letter);
        pair.map(|(access, _)| *access)
    }

    /// Returns the access that allows each operation that `self` or `other` allows: `r` and `w`
    /// become `rw`.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns the access as bits. The kernel passes the same bits to a BPF program that checks
    /// each access of a cgroup to a device.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns every non-empty combination of the allowed operations. For `rw` these are `r`, `w`
    /// and `rw`.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        (1..=Self::ALL.0)
            .map(Self)
            .filter(move |subset| self.contains(*subset))
    }

    /// Returns each allowed operation alone. For `rw` these are `r` and `w`.
    pub fn iter(self) -> impl Iterator<Item = Self> {
        let operations = Self::ACCESS_LETTERS.into_iter().map(|(access, _)| access);
        operations.filter(move |access| self.contains(*access))
    }
}

/// The default access to a node of a class: reading and writing, but not mknod(2).
impl Default for Access {
    fn default() -> Self {
        Self::READ.union(Self::WRITE)
    }
}

impl TryFrom<String> for Access {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        Self::parse(&text)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = Self::ACCESS_LETTERS.iter();
        letters
            .filter(|(access, _)| self.contains(*access))
            .try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl DeviceRule {
    /// Parses a rule that `Display` wrote, such as `c 10:183 rw`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let kind = DeviceKind::parse(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        let access = Access::parse(fields.next()?).ok()?;
        Some(Self::new(kind, major, minor, access))
    }

    pub fn new(kind: DeviceKind, major: u32, minor: u32, access: Access) -> Self {
        let number = DeviceNumber { kind, major, minor };
        Self { number, access }
    }

    pub fn kind(&self) -> DeviceKind {
        self.number.kind
    }

    pub fn major(&self) -> u32 {
        self.number.major
    }

    pub fn minor(&self) -> u32 {
        self.number.minor
    }

    pub fn access(&self) -> Access {
        self.access
    }
}

impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_access() {
        for (letters, canonical) in [("r", "r"), ("rw", "rw"), ("mwr", "rwm"), ("rr", "r")] {
            assert_eq!(Access::parse(letters).unwrap().to_string(), canonical);
        }
        for letters in ["", "x", "rwx", "R", "r w"] {
            let bad = Err(AccessError(letters.to_owned()));
            assert_eq!(Access::parse(letters), bad);
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
}
