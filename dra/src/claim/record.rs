//! What is kept of a prepared claim, in a small file of its own.

use serde::{Deserialize, Serialize};

use device_class::name::{ClassName, DeviceId};

use super::parameters::Parameters;

/// The uid of a claim, fit for the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimUid(String);

impl ClaimUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClaimUid {
    type Error = String;

    fn try_from(uid: String) -> Result<Self, String> {
        // The API server makes them: 36 characters.
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        match (1..=40).contains(&uid.len()) && uid.chars().all(fits) {
            true => Ok(ClaimUid(uid)),
            false => {
                let uid = device_class::name::excerpt(&uid);
                Err(format!("`{uid}` is not the uid of a claim"))
            }
        }
    }
}

impl From<ClaimUid> for String {
    fn from(uid: ClaimUid) -> String {
        uid.0
    }
}

/// A prepared claim. Fields that a later version adds are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub uid: ClaimUid,
    pub namespace: String,
    pub name: String,
    pub devices: Vec<PreparedDevice>,
    /// What is under way, or failed: the other devices of the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub making: Vec<Making>,
}

/// A part that is made, or a device on which room is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Making {
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    pub class: ClassName,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedDevice {
    /// The main request, without its subrequest.
    pub request: String,
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    pub class: ClassName,
    pub id: DeviceId,
    /// Which share of a device that several claims may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// How many shares that takes. Versions that did not record it gave away most often one.
    #[serde(default = "default_shares", skip_serializing_if = "is_one")]
    pub shares: u64,
    /// Whether the claim only looks at it, and others may have it.
    #[serde(default)]
    pub admin: bool,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

fn default_shares() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_one(shares: &u64) -> bool {
    *shares == 1
}

impl Record {
    /// The version that this program writes.
    pub const VERSION: u32 = 1;

    /// `NAMESPACE/NAME`, for people.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
