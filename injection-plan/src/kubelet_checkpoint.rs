//! Reads the kubelet checkpoint `kubelet_internal_checkpoint`. In this file the kubelet's device
//! manager records which devices each container has (Kubernetes,
//! pkg/kubelet/cm/devicemanager/checkpoint). Fields that Boathook does not need are ignored. The
//! checksum is not verified, because kubelet versions compute it differently.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use host_files::json_text;
use host_files::rooted_path::read_regular_file;
use serde::Deserialize;

/// The name of the checkpoint file. It is in the kubelet's directory for device plugins,
/// `/var/lib/kubelet/device-plugins` by default.
pub const FILE_NAME: &str = "kubelet_internal_checkpoint";

/// The content of a kubelet checkpoint: the allocations of the kubelet's device manager.
#[derive(Debug, Deserialize)]
pub struct KubeletCheckpoint {
    #[serde(rename = "Data")]
    data: CheckpointData,
}

#[derive(Debug, Deserialize)]
struct CheckpointData {
    #[serde(rename = "PodDeviceEntries")]
    entries: Option<Vec<PodDevices>>,
}

#[derive(Debug, Deserialize)]
struct PodDevices {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    #[serde(rename = "DeviceIDs")]
    devices: DeviceIds,
}

/// The ids of the devices that one container has of one resource. Since Kubernetes 1.20 they are
/// grouped by NUMA node. Earlier versions write a plain list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DeviceIds {
    ByNumaNode(BTreeMap<String, Vec<String>>),
    List(Vec<String>),
}

/// The reason why a kubelet checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    #[error("it is larger than {} bytes", KubeletCheckpoint::MAX_BYTES)]
    TooLarge,
    #[error("it has an unknown format")]
    Json(#[from] serde_json::Error),
}

impl CheckpointError {
    /// Returns whether the checkpoint file does not exist. The kubelet creates the file when it
    /// allocates a device for the first time.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The devices of one resource that the kubelet allocated to one container. The texts are not
/// validated, because other device plugins may use ids of any form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation<'a> {
    pub pod_uid: &'a str,
    pub container: &'a str,
    pub resource: &'a str,
    pub devices: Vec<&'a str>,
}

impl KubeletCheckpoint {
    /// The maximum size in bytes of a checkpoint. A larger file is not read. A checkpoint for 110
    /// pods with 16 devices each has about half a megabyte.
    pub const MAX_BYTES: usize = 16 << 20;

    /// Reads the checkpoint at `path`. A checkpoint larger than [`KubeletCheckpoint::MAX_BYTES`] is
    /// an error.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        Self::parse(&read_checkpoint(path)?)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, CheckpointError> {
        Ok(json_text::parse(bytes)?)
    }

    /// Returns all allocations in the order of the checkpoint. The maximum size of the file
    /// ([`KubeletCheckpoint::MAX_BYTES`]) bounds their number.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation<'_>> {
        let entries = self.data.entries.iter().flatten();
        entries.map(|entry| Allocation {
            pod_uid: &entry.pod_uid,
            container: &entry.container,
            resource: &entry.resource,
            devices: match &entry.devices {
                DeviceIds::ByNumaNode(ids_by_numa_node) => ids_by_numa_node
                    .values()
                    .flatten()
                    .map(|id| &**id)
                    .collect(),
                DeviceIds::List(ids) => ids.iter().map(|id| &**id).collect(),
            },
        })
    }
}

/// Reads a whole checkpoint file. Returns an error if the file is larger than
/// [`KubeletCheckpoint::MAX_BYTES`].
pub(crate) fn read_checkpoint(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    read_regular_file(path, KubeletCheckpoint::MAX_BYTES as u64).map_err(|error| {
        match error.kind() {
            io::ErrorKind::FileTooLarge => CheckpointError::TooLarge,
            _ => error.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_device_lists_are_read() {
        let text = r#"{"Data":{"PodDeviceEntries":[
            {"PodUID":"u1","ContainerName":"c","ResourceName":"a.b/c","DeviceIDs":{"-1":["x"],"0":["y"]}},
            {"PodUID":"u2","ContainerName":"d","ResourceName":"a.b/c","DeviceIDs":["z"],"AllocResp":"…"}
        ],"RegisteredDevices":{}},"Checksum":1}"#;
        let record = KubeletCheckpoint::parse(text.as_bytes()).unwrap();
        let allocations: Vec<_> = record.allocations().collect();
        let of = |pod_uid, container, devices: &[&'static str]| Allocation {
            pod_uid,
            container,
            resource: "a.b/c",
            devices: devices.to_vec(),
        };
        assert_eq!(
            allocations,
            [of("u1", "c", &["x", "y"]), of("u2", "d", &["z"])]
        );
        let empty = KubeletCheckpoint::parse(br#"{"Data":{"PodDeviceEntries":null}}"#).unwrap();
        assert_eq!(empty.allocations().count(), 0);
        assert!(KubeletCheckpoint::parse(b"[]").is_err());
    }
}
