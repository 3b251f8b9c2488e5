//! The kubelet's record of which container has which devices:
//! `kubelet_internal_checkpoint` (kubernetes/kubernetes,
//! pkg/kubelet/cm/devicemanager/checkpoint).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kubelet_api::deviceplugin::ContainerAllocateResponse;
use prost::Message;
use serde::{Deserialize, Serialize};

/// The file's name, in the directory of device plugins.
pub(super) const FILE: &str = "kubelet_internal_checkpoint";

/// The NUMA node of a device without one.
pub(super) const NO_NUMA: i64 = -1;

/// The content of the checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Record {
    /// One for each container and resource.
    pub(super) pod_device_entries: Vec<Entry>,
    /// The healthy devices by resource.
    pub(super) registered_devices: BTreeMap<String, Vec<String>>,
}

/// The devices that one container has of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: String,
    pub(super) container_name: String,
    pub(super) resource_name: String,
    /// The ids by NUMA node.
    #[serde(rename = "DeviceIDs")]
    pub(super) device_ids: BTreeMap<i64, Vec<String>>,
    /// The Allocate response, as protobuf in base64.
    pub(super) alloc_resp: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Record,
    checksum: u64,
}

impl Record {
    /// Reads the record of an earlier run; an empty one if there is none.
    pub(super) fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        serde_json::from_str(&text)
            .map(|file: File| file.data)
            .unwrap_or_default()
    }

    /// Writes the record whole or not at all, as the kubelet does.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        // The kubelet's checksum is over Go's dump of the structure; any number
        // is sufficient for readers that do not verify it.
        let file = File {
            data: self.clone(),
            checksum: 0,
        };
        let temporary = directory.join(format!(".{FILE}"));
        fs::write(&temporary, serde_json::to_vec(&file)?)?;
        fs::rename(temporary, directory.join(FILE))
    }
}

/// A response as it is recorded.
pub(super) fn encoded(response: &ContainerAllocateResponse) -> String {
    STANDARD.encode(response.encode_to_vec())
}
