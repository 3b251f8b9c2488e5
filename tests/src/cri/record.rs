//! Writes a kubelet checkpoint, which records the devices of containers (kubernetes/kubernetes,
//! pkg/kubelet/cm/devicemanager/checkpoint).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::Pod;
use crate::demo_host::DemoHost;

/// The content of a kubelet checkpoint, and its file.
#[derive(Debug)]
pub struct Record {
    file: PathBuf,
    entries: Vec<Value>,
}

impl Record {
    /// Creates a record without entries. The file is not written yet.
    pub fn new(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            entries: Vec::new(),
        }
    }

    /// Returns the lines of the hook's configuration that name this file as the kubelet checkpoint.
    pub fn config(&self) -> String {
        format!("[trust]\nkubelet_checkpoint = {:?}\n", self.file)
    }

    /// Records the allocation of a pod's container, and writes the whole record.
    pub fn add(&mut self, pod: &Pod) -> Result<()> {
        let devices = pod.allocated();
        if !devices.is_empty() {
            self.entries.push(json!({
                "PodUID": pod.uid(),
                "ContainerName": Pod::CONTAINER,
                "ResourceName": DemoHost::RESOURCE,
                "DeviceIDs": {"-1": devices},
                "AllocResp": "",
            }));
        }
        let data = json!({"PodDeviceEntries": self.entries, "RegisteredDevices": {}});
        let unfinished = self.file.with_extension("new");
        fs::write(
            &unfinished,
            json!({"Data": data, "Checksum": 0}).to_string(),
        )?;
        fs::rename(unfinished, &self.file)?;
        Ok(())
    }
}
