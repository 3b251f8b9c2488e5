//! The record of a prepared claim, which is a small file of its own.

use serde::{Deserialize, Serialize};

use device_class::name::{ClassName, DeviceId};

use super::parameters::Parameters;

/// The uid of a claim, which is valid as the name of a file.
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
        // The API server generates uids with 36 characters.
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

/// A prepared claim. Fields that a later version has added are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub version: u32,
    pub uid: ClaimUid,
    pub namespace: String,
    pub name: String,
    pub devices: Vec<PreparedDevice>,
    /// The other devices of the claim, which are being made or could not be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub making: Vec<Making>,
}

/// A part that is being made, or a device on which room is being made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Making {
    pub pool: String,
    /// The name in the pool.
    pub device: String,
    pub class: ClassName,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedDevice {
    /// The name of the request, without its subrequest.
    pub request: String,
    pub pool: String,
    /// The name in the pool.
    pub device: String,
    pub class: ClassName,
    pub id: DeviceId,
    /// The id of the share, for a device that several claims may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The number of shares that the claim takes. Records of older versions do not have it;
    /// most of their claims have one share.
    #[serde(default = "default_shares", skip_serializing_if = "is_one")]
    pub shares: u64,
    /// Whether the claim has admin access (`adminAccess`). Then other claims may have the
    /// device as well.
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
    /// The version of the records that this program writes.
    pub const VERSION: u32 = 1;

    /// Returns the claim's name for messages, `NAMESPACE/NAME`.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
