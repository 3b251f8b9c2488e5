//! One plugin as the kubelet sees it: its client, and its devices.

use std::path::Path;
use std::time::Duration;

use kubelet_api::HEALTHY;
use kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use kubelet_api::deviceplugin::{DevicePluginOptions, Empty, ListAndWatchResponse};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint as Address};

use super::event::DeviceReport;

/// The time limit for dialing a plugin.
const DIAL: Duration = Duration::from_secs(10);

/// The time between two tries to dial.
const DIAL_AGAIN: Duration = Duration::from_millis(20);

/// A plugin that was dialled.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// For calls.
    pub(super) client: DevicePluginClient<Channel>,
    /// The options that it reports.
    pub(super) options: DevicePluginOptions,
    /// Its devices in its last list; all unhealthy after its stream broke.
    pub(super) devices: Vec<DeviceReport>,
    /// The number of the registration of this resource.
    pub(super) generation: u64,
}

/// Dials a plugin, requests its options and opens its stream.
pub(super) async fn dial(
    socket: &Path,
    generation: u64,
) -> Result<(Endpoint, Streaming<ListAndWatchResponse>), String> {
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
    let talking = async {
        let options = client
            .get_device_plugin_options(Empty {})
            .await?
            .into_inner();
        let stream = client.list_and_watch(Empty {}).await?.into_inner();
        Ok::<_, tonic::Status>((options, stream))
    };
    let (options, stream) = timeout_at(end, talking)
        .await
        .map_err(|_| format!("device plugin at {socket} did not answer in {DIAL:?}"))?
        .map_err(|status| status.to_string())?;
    Ok((
        Endpoint {
            client,
            options,
            devices: Vec::new(),
            generation,
        },
        stream,
    ))
}

impl Endpoint {
    /// Ids that may be given.
    pub(super) fn healthy(&self) -> impl Iterator<Item = &DeviceReport> {
        self.devices
            .iter()
            .filter(|device| device.health == HEALTHY)
    }
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
