//! The part of a kubelet that calls DRA drivers (kubernetes/kubernetes, pkg/kubelet/pluginmanager
//! and cm/dra). It finds a driver by its socket in `plugins_registry`, uses the first version of
//! the interface that both support, and calls the driver that registered last.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use daemon::kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use daemon::kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use daemon::kubelet_api::dra::v1beta1;
use daemon::kubelet_api::dra_health::dra_resource_health_client::DraResourceHealthClient;
use daemon::kubelet_api::dra_health::{
    DeviceHealth, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use daemon::kubelet_api::pluginregistration::registration_client::RegistrationClient;
use daemon::kubelet_api::pluginregistration::{PluginInfo, RegistrationStatus};
use daemon::kubelet_api::{DRA_PLUGIN_TYPE, DRA_VERSIONS};
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::plugin_info::plugin_info;

/// The time limits of the kubelet for the calls `GetInfo` and all others.
const GET_INFO_TIMEOUT: Duration = Duration::from_secs(1);
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// A DRA driver that is registered with this kubelet.
#[derive(Debug, Clone)]
pub struct DraDriver {
    /// The driver's answer to `GetInfo`.
    pub info: PluginInfo,
    channel: Channel,
}

/// Returns the registration sockets of drivers in the kubelet's directory.
pub fn registration_sockets(kubelet: &Path) -> Vec<PathBuf> {
    super::watcher::sockets(&kubelet.join("plugins_registry"))
        .into_keys()
        .collect()
}

impl DraDriver {
    /// Registers the driver whose registration socket is `socket`, a file in `plugins_registry`.
    pub async fn register(socket: &Path) -> Result<Self> {
        let info = timeout(GET_INFO_TIMEOUT, plugin_info(socket)).await;
        let info = info.context("GetInfo took too long")??;
        ensure!(info.r#type == DRA_PLUGIN_TYPE, "{info:?}");
        let known = |version: &&String| DRA_VERSIONS[..2].contains(&version.as_str());
        let version = info.supported_versions.iter().find(known);
        ensure!(
            version.is_some_and(|version| version == DRA_VERSIONS[0]),
            "{info:?}"
        );
        let channel = dial(Path::new(&info.endpoint)).await?;
        let status = RegistrationStatus {
            plugin_registered: true,
            error: String::new(),
        };
        let mut client = RegistrationClient::new(dial(socket).await?);
        client.notify_registration_status(status).await?;
        Ok(Self { info, channel })
    }

    /// Prepares resource claims, each given as [namespace, name, uid]. The result has the devices
    /// or the error of each claim by its uid.
    pub async fn prepare(
        &self,
        claims: &[[&str; 3]],
    ) -> Result<BTreeMap<String, Result<Vec<Device>, String>>> {
        let mut client = DraPluginClient::new(self.channel.clone());
        let claims = claims.iter().map(claim).collect();
        let call = client.node_prepare_resources(NodePrepareResourcesRequest { claims });
        let answers = with_timeout(call).await?.claims.into_iter();
        let answers = answers.map(|(uid, answer)| match answer.error.as_str() {
            "" => (uid, Ok(answer.devices)),
            error => (uid, Err(error.to_owned())),
        });
        Ok(answers.collect())
    }

    /// Prepares one resource claim and returns its devices.
    pub async fn prepare_one(&self, claim: [&str; 3]) -> Result<Vec<Device>> {
        let mut answers = self.prepare(&[claim]).await?;
        let answer = answers
            .remove(claim[2])
            .context("no answer for the claim")?;
        answer.map_err(anyhow::Error::msg)
    }

    /// Unprepares one resource claim, given as [namespace, name, uid].
    pub async fn unprepare(&self, one: [&str; 3]) -> Result<()> {
        let mut client = DraPluginClient::new(self.channel.clone());
        let claims = vec![claim(&one)];
        let call = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims });
        let answer = with_timeout(call).await?;
        let answer = answer
            .claims
            .get(one[2])
            .context("no answer for the claim")?;
        match answer.error.as_str() {
            "" => Ok(()),
            error => bail!("{error}"),
        }
    }

    /// Unprepares one resource claim by the interface v1beta1, as a kubelet before 1.34 does.
    pub async fn unprepare_v1beta1(&self, one: [&str; 3]) -> Result<()> {
        let mut client = v1beta1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
        let claims = vec![claim(&one)];
        let call = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims });
        with_timeout(call).await?;
        Ok(())
    }

    /// Returns the health of all devices from the first message of the driver's health stream.
    pub async fn health(&self) -> Result<Vec<DeviceHealth>> {
        self.watch_health().await?.next_devices().await
    }

    /// The messages with the devices' health.
    pub async fn watch_health(&self) -> Result<HealthStream> {
        let mut client = DraResourceHealthClient::new(self.channel.clone());
        let request = NodeWatchResourcesRequest {};
        let stream = client.node_watch_resources(request).await?;
        Ok(HealthStream(stream.into_inner()))
    }
}

/// The messages with the devices' health.
#[derive(Debug)]
pub struct HealthStream(Streaming<NodeWatchResourcesResponse>);

impl HealthStream {
    /// The devices in the next message.
    pub async fn next_devices(&mut self) -> Result<Vec<DeviceHealth>> {
        let message = self.0.message().await?;
        Ok(message.context("the stream has ended")?.devices)
    }
}

fn claim(&[namespace, name, uid]: &[&str; 3]) -> Claim {
    Claim {
        namespace: namespace.to_owned(),
        uid: uid.to_owned(),
        name: name.to_owned(),
    }
}

async fn dial(socket: &Path) -> Result<Channel> {
    let address = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    let channel = address.connect().await;
    channel.with_context(|| format!("cannot dial {}", socket.display()))
}

async fn with_timeout<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T> {
    let answer = timeout(CALL_TIMEOUT, call)
        .await
        .context("the call took too long")?;
    Ok(answer?.into_inner())
}
