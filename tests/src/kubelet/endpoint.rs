//! One plugin as the kubelet sees it: its client, and its devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use kubelet_api::deviceplugin::{DevicePluginOptions, Empty, ListAndWatchResponse};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint as Address};

use super::event::DeviceReport;

/// The time limit for dialing a plugin.
const DIAL: Duration = Duration::from_secs(10);

/// The time between two tries to dial.
const DIAL_AGAIN: Duration = Duration::from_millis(20);

/// A plugin that was dialled.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// For calls. `None` after the plugin was disconnected, which closes the connection.
    pub(super) client: Option<DevicePluginClient<Channel>>,
    /// The options that it reports.
    pub(super) options: DevicePluginOptions,
    pub(super) socket: PathBuf,
}

/// Dials a plugin and requests its options.
pub(super) async fn dial(socket: &Path) -> Result<Endpoint, String> {
    let path = socket.to_owned();
    let socket = socket.display();
    let address = Address::from_shared(format!("unix://{socket}")).map_err(|e| e.to_string())?;
    let end = Instant::now() + DIAL;
    let connecting = async {
        loop {
            match address.connect().await {
                Ok(channel) => return channel,
                Err(_) => sleep(DIAL_AGAIN).await,
            }
        }
    };
    let channel = timeout_at(end, connecting)
        .await
        .map_err(|_| format!("failed to dial device plugin at {socket} in {DIAL:?}"))?;
    let mut client = DevicePluginClient::new(channel);
    let options = timeout_at(end, client.get_device_plugin_options(Empty {}))
        .await
        .map_err(|_| format!("device plugin at {socket} did not answer in {DIAL:?}"))?
        .map_err(|status| format!("failed to get device plugin options: {status}"))?;
    Ok(Endpoint {
        client: Some(client),
        options: options.into_inner(),
        socket: path,
    })
}

/// A list as it is reported.
pub(super) fn reports(list: ListAndWatchResponse) -> Vec<DeviceReport> {
    let report = |device: kubelet_api::deviceplugin::Device| DeviceReport {
        numa: device
            .topology
            .and_then(|topology| topology.nodes.first().map(|node| node.id)),
        id: device.id,
        health: device.health,
    };
    list.devices.into_iter().map(report).collect()
}
