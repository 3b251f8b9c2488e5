//! Keeps the known holders in a file of the host. A holder is a container to which a device was
//! allocated. If the kubelet has lost its checkpoint, a plugin that starts knows only by this file
//! which pods had devices before.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host_files::release_lock::LOCK_DIR_PATH;
use host_files::rooted_path::{read_own_text, replace_file};
use serde::{Deserialize, Serialize};

use super::{Holder, Holders};

/// The name of the file. Its directory, which also contains the lock of the node, is below `/run`,
/// because no container survives a reboot.
const FILE_NAME: &str = "holders.json";

/// The size limit of the file in bytes. A larger file is ignored.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The mode of the file. Other users may not read it, because it names the pods of the node.
const FILE_MODE: u32 = 0o600;

/// One entry of the file: a device, and a container to which it was allocated.
#[derive(Debug, Serialize, Deserialize)]
struct SavedHolder {
    resource: String,
    device: String,
    pod: String,
    container: String,
}

/// The file with the known holders.
#[derive(Debug)]
pub(super) struct HolderFile {
    path: PathBuf,
}

impl HolderFile {
    pub(super) fn new(host_root: &Path) -> Self {
        HolderFile {
            path: host_root.join(LOCK_DIR_PATH).join(FILE_NAME),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the holders in the file. Returns no holders if the file is missing or invalid, or if
    /// neither root nor the user of this process owns it.
    pub(super) fn read(&self) -> Holders {
        let Ok(text) = read_own_text(&self.path, MAX_FILE_BYTES) else {
            return Holders::new();
        };
        let saved_holders: Vec<SavedHolder> = serde_json::from_str(&text).unwrap_or_default();
        let mut holders = Holders::new();
        for saved in saved_holders {
            let holder = Holder {
                pod_uid: saved.pod,
                container: saved.container,
            };
            let device = (saved.resource, saved.device);
            holders.entry(device).or_default().insert(holder);
        }
        holders
    }

    /// Replaces the holders of the file. Creates its directory if there is none.
    pub(super) fn write(&self, holders: &Holders) -> io::Result<()> {
        let saved_holders: Vec<SavedHolder> = holders
            .iter()
            .flat_map(|((resource, device), holders)| {
                holders.iter().map(|holder| SavedHolder {
                    resource: resource.clone(),
                    device: device.clone(),
                    pod: holder.pod_uid.clone(),
                    container: holder.container.clone(),
                })
            })
            .collect();
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        replace_file(&self.path, FILE_MODE, &serde_json::to_vec(&saved_holders)?)
    }
}
