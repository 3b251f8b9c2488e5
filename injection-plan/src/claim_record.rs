//! The records of prepared resource claims. Each claim has one file. `boathook-dra` writes the
//! records. The plugin reads them, because it must not offer the devices in them. The installer
//! keeps the DRA driver as long as there is a record.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use device_class::name::{ClassName, DeviceId, DeviceRef, excerpt};
use serde::{Deserialize, Serialize};

/// The path of the DRA driver's directory below the kubelet's root directory, which is
/// `/var/lib/kubelet` by default.
pub const DRIVER_DIR_PATH: &str = "plugins/boathook.dev";

/// The name of the directory for claim records in the DRA driver's directory.
const RECORDS_DIR_NAME: &str = "claims";

/// The maximum size in bytes of a claim record. A claim has at most 32 devices. The parameters of a
/// device have at most 10 KiB, and take up to four times as much in the record.
pub const MAX_RECORD_BYTES: u64 = 4 << 20;

const FILE_NAME_SUFFIX: &str = ".json";

/// Returns the path of the directory for claim records, such as
/// `/var/lib/kubelet/plugins/boathook.dev/claims`.
pub fn records_dir_path(driver_directory: &Path) -> PathBuf {
    driver_directory.join(RECORDS_DIR_NAME)
}

/// The uid of a resource claim. It can be used as a file name, because it has only letters, digits
/// and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimUid(String);

impl ClaimUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the file name of the record for this claim, which is `UID.json`.
    pub fn file_name(&self) -> String {
        format!("{}{FILE_NAME_SUFFIX}", self.0)
    }
}

impl TryFrom<String> for ClaimUid {
    type Error = String;

    fn try_from(uid: String) -> Result<Self, String> {
        // The API server generates uids with 36 characters.
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if (1..=40).contains(&uid.len()) && uid.chars().all(is_allowed) {
            Ok(ClaimUid(uid))
        } else {
            Err(format!("`{}` is not the uid of a claim", excerpt(&uid)))
        }
    }
}

impl From<ClaimUid> for String {
    fn from(uid: ClaimUid) -> String {
        uid.0
    }
}

/// Returns the uid in the file name of a record. The uid is not checked. Returns `None` for any
/// other file, such as a temporary file, whose name begins with a dot.
pub fn parse_uid_from_file_name(name: &OsStr) -> Option<&str> {
    let uid = name.to_str()?.strip_suffix(FILE_NAME_SUFFIX)?;
    (!uid.starts_with('.')).then_some(uid)
}

/// The record of a prepared claim. Fields that a later version has added are ignored. `P` is the
/// type of a device's parameters, which only the DRA driver reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: Serialize + Default + PartialEq",
    deserialize = "P: Deserialize<'de> + Default"
))]
pub struct ClaimRecord<P = IgnoredParameters> {
    pub version: u32,
    pub uid: ClaimUid,
    pub namespace: String,
    pub name: String,
    /// The uids of the pods that can use the claim. `None` means that the pods are not known,
    /// because an older version wrote the record, or because the claim is not reserved for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<String>>,
    pub devices: Vec<PreparedDevice<P>>,
    /// The devices of the claim that are not ready, because they are still being created or their
    /// creation has failed.
    #[serde(default, rename = "making", skip_serializing_if = "Vec::is_empty")]
    pub pending_devices: Vec<PendingDevice>,
}

/// A device that the DRA driver is changing for a claim. It is a partition that the driver creates,
/// or a device from which the driver removes partitions to make room for a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDevice {
    pub pool: String,
    /// The name of the device in the pool, as its ResourceSlice publishes it.
    pub device: String,
    pub class: ClassName,
}

/// A device of a claim that containers can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: Serialize + Default + PartialEq",
    deserialize = "P: Deserialize<'de> + Default"
))]
pub struct PreparedDevice<P = IgnoredParameters> {
    /// The name of the request in the claim. If the request has subrequests, it does not include
    /// their names.
    pub request: String,
    pub pool: String,
    /// The name of the device in the pool, as its ResourceSlice publishes it.
    pub device: String,
    pub class: ClassName,
    pub id: DeviceId,
    /// The id of the claim's share of the device, if several claims can use the device at the same
    /// time.
    #[serde(default, rename = "share", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// The number of shares of the device that the claim has. Records of older versions do not have
    /// this field, which means one share.
    #[serde(
        default = "default_share_count",
        rename = "shares",
        skip_serializing_if = "is_one"
    )]
    pub share_count: u64,
    /// Whether the claim has admin access (`adminAccess`) to the device. Other claims and pods may
    /// then have the device at the same time.
    #[serde(default, rename = "admin")]
    pub has_admin_access: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub parameters: P,
}

/// The type of a device's parameters in programs that do not read them, such as the plugin. serde
/// ignores all fields of the parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredParameters {}

fn default_share_count() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_one(share_count: &u64) -> bool {
    *share_count == 1
}

fn is_default<P: Default + PartialEq>(parameters: &P) -> bool {
    *parameters == P::default()
}

impl<P> PreparedDevice<P> {
    pub fn device_ref(&self) -> DeviceRef {
        DeviceRef::new(&self.class, &self.id)
    }
}

impl<P> ClaimRecord<P> {
    /// The format version of the records that this program writes.
    pub const VERSION: u32 = 1;

    /// Returns the name of the claim as `NAMESPACE/NAME`, for messages.
    pub fn qualified_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_as_it_was_read() {
        for text in [
            concat!(
                r#"{"version":1,"uid":"u-1","namespace":"n","name":"a","devices":[{"request":"r","#,
                r#""pool":"p","device":"npu-0","class":"npu","id":"0","admin":false}]}"#
            ),
            concat!(
                r#"{"version":1,"uid":"u-1","namespace":"n","name":"a","pods":["p-1"],"devices":[{"#,
                r#""request":"r","pool":"p","device":"npu-0","class":"npu","id":"0","share":"s","shares":2,"#,
                r#""admin":true}],"making":[{"pool":"p","device":"npu-1","class":"npu"}]}"#
            ),
        ] {
            let record: ClaimRecord = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
        }
    }

    #[test]
    fn parameters_are_ignored_by_programs_that_do_not_read_them() {
        let text = r#"{"request":"r","pool":"p","device":"d","class":"npu","id":"0","parameters":{"capabilities":["a"]}}"#;
        let device: PreparedDevice = serde_json::from_str(text).unwrap();
        assert_eq!(device.parameters, IgnoredParameters {});
    }

    #[test]
    fn a_record_has_its_uid_in_its_name() {
        for (name, uid) in [
            ("u-1.json", Some("u-1")),
            (".u-1.json", None),
            ("u-1", None),
            ("u-1.json.tmp", None),
        ] {
            assert_eq!(parse_uid_from_file_name(name.as_ref()), uid, "{name}");
        }
        let uid = ClaimUid::try_from("u-1".to_owned()).unwrap();
        assert_eq!(uid.file_name(), "u-1.json");
    }
}
