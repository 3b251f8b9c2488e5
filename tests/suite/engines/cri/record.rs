//! The kubelet's record of which container holds which devices
//! (kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use harness::demo_host::DemoHost;
use serde_json::{Value, json};

/// The record, as it is written.
pub(super) struct Record {
    file: PathBuf,
    entries: Vec<Value>,
}

impl Record {
    /// A record without entries, not written yet.
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            entries: Vec::new(),
        }
    }

    /// Records that a container was given these devices, and writes it whole.
    pub(super) fn add(&mut self, pod: &str, container: &str, devices: &[String]) -> Result<()> {
        if !devices.is_empty() {
            self.entries.push(json!({
                "PodUID": pod,
                "ContainerName": container,
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
