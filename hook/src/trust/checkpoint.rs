//! The kubelet's record of which container holds which devices
//! (`kubelet_internal_checkpoint`; Kubernetes,
//! pkg/kubelet/cm/devicemanager/checkpoint). Only what is needed is read; the
//! checksum, which differs between versions of the kubelet, is not verified.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use device_class::name::{DeviceId, ResourceName};
use serde::Deserialize;

use super::PodUid;

/// The record of one node.
#[derive(Debug, Deserialize)]
pub(super) struct Checkpoint {
    #[serde(rename = "Data")]
    data: Data,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(rename = "PodDeviceEntries")]
    entries: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    #[serde(rename = "DeviceIDs")]
    devices: Devices,
}

/// By NUMA node since Kubernetes 1.20, a plain list before.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Devices {
    ByNode(BTreeMap<String, Vec<String>>),
    Plain(Vec<String>),
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("it is larger than {} bytes", Checkpoint::MAX)]
    TooLarge,
    #[error("it has an unknown format: {0}")]
    Json(#[from] serde_json::Error),
}

impl Checkpoint {
    /// The largest record that is read, in bytes. 110 pods with 16 devices
    /// each take about half a megabyte.
    pub(super) const MAX: usize = 16 << 20;

    /// Reads the record, once and whole.
    ///
    /// # Errors
    /// The outer error is the file's, the inner one the content's.
    pub(super) fn read(path: &Path) -> io::Result<Result<Self, CheckpointError>> {
        let mut bytes = Vec::new();
        File::open(path)?
            .take(Self::MAX as u64 + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() > Self::MAX {
            return Ok(Err(CheckpointError::TooLarge));
        }
        Ok(serde_json::from_slice(&bytes).map_err(CheckpointError::from))
    }

    /// The devices of one container. Entries of other plugins may have any form
    /// and are skipped. [`Checkpoint::MAX`] bounds the number of entries.
    pub(super) fn devices_of(
        &self,
        pod: &PodUid,
        container: &str,
    ) -> BTreeMap<ResourceName, BTreeSet<DeviceId>> {
        let entries = self.data.entries.iter().flatten().filter(|entry| {
            entry.container == container && PodUid::parse(&entry.pod_uid).as_ref() == Some(pod)
        });
        let mut devices: BTreeMap<_, BTreeSet<DeviceId>> = BTreeMap::new();
        for entry in entries {
            let Ok(resource) = ResourceName::try_from(entry.resource.clone()) else {
                continue;
            };
            let ids: Vec<&String> = match &entry.devices {
                Devices::ByNode(by_node) => by_node.values().flatten().collect(),
                Devices::Plain(ids) => ids.iter().collect(),
            };
            let held = devices.entry(resource).or_default();
            held.extend(
                ids.into_iter()
                    .filter_map(|id| DeviceId::try_from(id.clone()).ok()),
            );
        }
        devices
    }
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing {
    use super::*;

    /// Reads a record, and the devices of each of its containers.
    pub fn checkpoint(bytes: &[u8]) {
        let Ok(checkpoint) = serde_json::from_slice::<Checkpoint>(bytes) else {
            return;
        };
        let entries: Vec<&Entry> = checkpoint.data.entries.iter().flatten().collect();
        for entry in entries.iter().take(8) {
            let Some(pod) = PodUid::parse(&entry.pod_uid) else {
                continue;
            };
            for (resource, ids) in checkpoint.devices_of(&pod, &entry.container) {
                for id in ids {
                    let recorded = entries.iter().any(|other| {
                        let held = match &other.devices {
                            Devices::ByNode(by_node) => {
                                by_node.values().flatten().any(|held| *held == *id.as_str())
                            }
                            Devices::Plain(ids) => ids.iter().any(|held| *held == *id.as_str()),
                        };
                        let pod_uid = PodUid::parse(&other.pod_uid);
                        let container = (pod_uid.as_ref(), &other.container);
                        let resource = other.resource == resource.as_str();
                        held && resource && container == (Some(&pod), &entry.container)
                    });
                    assert!(recorded, "{id} of {resource} is not recorded");
                }
            }
        }
    }
}
