//! The handover marker: a file that exists while one instance of the plugin takes a resource over
//! from another one. If the instance that wrote the file ends, the file is left.
//!
//! During a handover the kubelet (1.25 to 1.36) does not notice the end of any instance (see
//! [`super::instance`]). If all instances end during a handover, the kubelet keeps the devices of
//! the resource, as if another plugin served them. The marker tells the next instance that it must
//! register although the kubelet has these devices. When a kubelet starts, it empties the directory
//! and thus removes the marker. It then knows no devices yet, so no marker is needed.
//!
//! The marker contains the socket name of the instance that the kubelet calls, so that the other
//! instance knows when it may end. The marker is empty until the serving instance has released the
//! other instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use device_class::name::ResourceName;
use host_files::rooted_path::{read_own_text, replace_file};

use crate::kubelet_dir::{MAX_SOCKET_NAME_BYTES, handover_marker_file_name};

/// The handover marker file of one resource, represented by the path of the file.
#[derive(Debug)]
pub(super) struct HandoverMarker(PathBuf);

impl HandoverMarker {
    /// Builds the path of a resource's handover marker file in `directory`. The file need not
    /// exist.
    pub(super) fn new(directory: &Path, resource: &ResourceName) -> Self {
        HandoverMarker(directory.join(handover_marker_file_name(resource)))
    }

    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|metadata| metadata.is_file())
    }

    /// Creates an empty handover marker file, or empties an existing one.
    pub(super) fn create(&self) -> io::Result<()> {
        self.write_serving_socket("")
    }

    /// Writes the socket name of the instance that the kubelet calls into the handover marker file.
    pub(super) fn write_serving_socket(&self, socket_name: &str) -> io::Result<()> {
        replace_file(&self.0, 0o600, socket_name.as_bytes())
    }

    /// Returns whether the handover marker file names `socket_name` as the socket that the kubelet
    /// calls.
    pub(super) fn names_serving_socket(&self, socket_name: &str) -> bool {
        let text = read_own_text(&self.0, MAX_SOCKET_NAME_BYTES as u64);
        text.is_ok_and(|text| text == socket_name)
    }

    pub(super) fn remove(&self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.0.display());
            }
            _ => {}
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}
