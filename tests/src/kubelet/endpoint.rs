//! The kubelet's client of one device plugin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::kubelet_api;
use daemon::kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use daemon::kubelet_api::deviceplugin::{DevicePluginOptions, Empty, ListAndWatchResponse};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint as Address};

use super::event::DeviceReport;

/// The time limit for connecting to a plugin and reading its options.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts to connect to a plugin.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A device plugin to which the kubelet is or was connected.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// The client for calls. It is `None` after the kubelet has disconnected the plugin, because
    /// dropping the client closes the connection.
    pub(super) client: Option<DevicePluginClient<Channel>>,
    /// The options that the plugin reports.
    pub(super) options: DevicePluginOptions,
    pub(super) socket: PathBuf,
}

/// Connects to the plugin at `socket` and requests its options.
pub(super) async fn dial(socket: &Path) -> Result<Endpoint, String> {
    let path = socket.to_owned();
    let socket = socket.display();
    let address = Address::from_shared(format!("unix://{socket}")).map_err(|e| e.to_string())?;
    let end = Instant::now() + DIAL_TIMEOUT;
    let connecting = async {
        loop {
            match address.connect().await {
                Ok(channel) => return channel,
                Err(_) => sleep(RETRY_INTERVAL).await,
            }
        }
    };
    let channel = timeout_at(end, connecting)
        .await
        .map_err(|_| format!("failed to dial device plugin at {socket} in {DIAL_TIMEOUT:?}"))?;
    let mut client = DevicePluginClient::new(channel);
    let options = timeout_at(end, client.get_device_plugin_options(Empty {}))
        .await
        .map_err(|_| format!("device plugin at {socket} did not answer in {DIAL_TIMEOUT:?}"))?
        .map_err(|status| format!("failed to get device plugin options: {status}"))?;
    Ok(Endpoint {
        client: Some(client),
        options: options.into_inner(),
        socket: path,
    })
}

/// Converts a ListAndWatch message to the form that tests compare.
pub(super) fn device_reports(list: ListAndWatchResponse) -> Vec<DeviceReport> {
    let report = |device: kubelet_api::deviceplugin::Device| DeviceReport {
        numa: device
            .topology
            .and_then(|topology| topology.nodes.first().map(|node| node.id)),
        id: device.id,
        health: device.health,
    };
    list.devices.into_iter().map(report).collect()
}
