//! The plugin watcher, which registers each plugin whose socket appears in `plugins_registry`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::kubelet_api::pluginregistration::RegistrationStatus;
use daemon::kubelet_api::pluginregistration::registration_client::RegistrationClient;
use daemon::kubelet_api::{DEVICE_PLUGIN_API_VERSION, PLUGIN_TYPE};
use tonic::transport::Endpoint;

use super::manager::Manager;
use super::plugin_info::plugin_info;

/// The interval between scans of the directory. The real kubelet uses inotify, with the same result
/// for a plugin.
const SCAN_INTERVAL: Duration = Duration::from_millis(10);

/// Registers plugins as their sockets appear in `directory`. This never ends.
pub(super) async fn watch(directory: PathBuf, manager: &Arc<Manager>) {
    let mut registered = BTreeMap::new();
    loop {
        let sockets = sockets(&directory);
        registered.retain(|path, inode| sockets.get(path) == Some(inode));
        for (path, inode) in sockets {
            if registered.contains_key(&path) {
                continue;
            }
            if let Err(error) = register(&path, manager).await {
                manager.log_refusal(&path.display().to_string(), &error);
            }
            registered.insert(path, inode);
        }
        tokio::time::sleep(SCAN_INTERVAL).await;
    }
}

/// Returns the sockets in `directory` with their inode numbers. Names that begin with a dot are
/// ignored, as by the kubelet.
pub(super) fn sockets(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let sockets = visible.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        let is_socket = metadata.file_type().is_socket();
        is_socket.then(|| (entry.path(), metadata.ino()))
    });
    sockets.collect()
}

async fn register(path: &Path, manager: &Arc<Manager>) -> Result<(), String> {
    let info = plugin_info(path).await.map_err(|e| format!("{e:#}"))?;
    let address = Endpoint::from_shared(format!("unix://{}", path.display()));
    let channel = address.map_err(|e| e.to_string())?.connect().await;
    let mut client = RegistrationClient::new(channel.map_err(|e| e.to_string())?);
    let supported = info.r#type == PLUGIN_TYPE
        && info
            .supported_versions
            .iter()
            .any(|v| v == DEVICE_PLUGIN_API_VERSION);
    let socket = match info.endpoint.as_str() {
        "" => path.to_owned(),
        endpoint => PathBuf::from(endpoint),
    };
    let connected = if supported {
        manager.connect(&info.name, &socket).await
    } else {
        Err(format!("{info:?} is not supported"))
    };
    let error = connected.clone().err().unwrap_or_default();
    let status = RegistrationStatus {
        plugin_registered: connected.is_ok(),
        error,
    };
    client
        .notify_registration_status(status)
        .await
        .map_err(|e| e.to_string())?;
    connected
}
