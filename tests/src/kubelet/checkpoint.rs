//! The kubelet's checkpoint file `kubelet_internal_checkpoint`, which records the devices of each
//! container (kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use daemon::kubelet_api::deviceplugin::ContainerAllocateResponse;
use prost::Message;
use serde::{Deserialize, Serialize};

/// The name of the checkpoint file in the kubelet's directory `device-plugins`.
pub(super) const FILE: &str = "kubelet_internal_checkpoint";

/// The NUMA node that the kubelet records for a device without one.
pub(super) const NO_NUMA: i64 = -1;

/// The content of the checkpoint file without its checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Record {
    /// One entry for each container and resource.
    pub(super) pod_device_entries: Vec<Entry>,
    /// The ids of the healthy devices of each resource.
    pub(super) registered_devices: BTreeMap<String, Vec<String>>,
}

/// The devices of one resource that one container has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: String,
    pub(super) container_name: String,
    pub(super) resource_name: String,
    /// The device ids by NUMA node.
    #[serde(rename = "DeviceIDs")]
    pub(super) device_ids: BTreeMap<i64, Vec<String>>,
    /// The plugin's response to Allocate, encoded as protobuf and then as base64.
    pub(super) alloc_resp: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Record,
    checksum: u64,
}

impl Record {
    /// Reads the checkpoint in `directory`. Without a readable one the record is empty, as after
    /// the first start of a kubelet.
    pub(super) fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        serde_json::from_str(&text)
            .map(|file: File| file.data)
            .unwrap_or_default()
    }

    /// Writes the checkpoint to a temporary file and renames it, as the kubelet does, so that a
    /// reader never sees a part of it.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        // The kubelet computes its checksum from Go's dump of the structure. No reader that is
        // tested verifies it, so any number is sufficient.
        let file = File {
            data: self.clone(),
            checksum: 0,
        };
        let temporary = directory.join(format!(".{FILE}"));
        fs::write(&temporary, serde_json::to_vec(&file)?)?;
        fs::rename(temporary, directory.join(FILE))
    }
}

/// Returns `response` as the checkpoint records it: protobuf in base64.
pub(super) fn encoded(response: &ContainerAllocateResponse) -> String {
    STANDARD.encode(response.encode_to_vec())
}
