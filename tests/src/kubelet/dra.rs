//! The part of a kubelet that drivers of resource claims see (kubernetes/kubernetes,
//! pkg/kubelet/pluginmanager and cm/dra): it finds a driver by its socket in
//! `plugins_registry`, uses the first version of the interface that it knows, and calls the
//! driver that registered last.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use kubelet_api::dra::v1beta1;
use kubelet_api::dra_health::dra_resource_health_client::DraResourceHealthClient;
use kubelet_api::dra_health::{DeviceHealth, NodeWatchResourcesRequest};
use kubelet_api::pluginregistration::registration_client::RegistrationClient;
use kubelet_api::pluginregistration::{PluginInfo, RegistrationStatus};
use kubelet_api::{DRA_PLUGIN_TYPE, DRA_VERSIONS};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::plugin_info::plugin_info;

/// Limits of the real one.
const INFO: Duration = Duration::from_secs(1);
const CALL: Duration = Duration::from_secs(45);

/// A driver that was found and registered.
#[derive(Debug, Clone)]
pub struct DraDriver {
    /// The plugin's description of itself.
    pub info: PluginInfo,
    channel: Channel,
}

/// The sockets of drivers below a kubelet's directory.
pub fn registration_sockets(kubelet: &Path) -> Vec<PathBuf> {
    super::watcher::sockets(&kubelet.join("plugins_registry"))
        .into_keys()
        .collect()
}

impl DraDriver {
    /// Registers the driver at a socket of `plugins_registry`.
    pub async fn register(socket: &Path) -> Result<Self> {
        let info = timeout(INFO, plugin_info(socket)).await;
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

    /// Prepares claims, given as namespace, name and uid, and returns the devices or the
    /// error of each by its uid.
    pub async fn prepare(
        &self,
        claims: &[[&str; 3]],
    ) -> Result<BTreeMap<String, Result<Vec<Device>, String>>> {
        let mut client = DraPluginClient::new(self.channel.clone());
        let claims = claims.iter().map(claim).collect();
        let call = client.node_prepare_resources(NodePrepareResourcesRequest { claims });
        let answers = in_time(call).await?.claims.into_iter();
        let answers = answers.map(|(uid, answer)| match answer.error.as_str() {
            "" => (uid, Ok(answer.devices)),
            error => (uid, Err(error.to_owned())),
        });
        Ok(answers.collect())
    }

    /// The devices of one claim.
    pub async fn prepare_one(&self, claim: [&str; 3]) -> Result<Vec<Device>> {
        let mut answers = self.prepare(&[claim]).await?;
        let answer = answers
            .remove(claim[2])
            .context("no answer for the claim")?;
        answer.map_err(anyhow::Error::msg)
    }

    /// Unprepares a claim.
    pub async fn unprepare(&self, one: [&str; 3]) -> Result<()> {
        let mut client = DraPluginClient::new(self.channel.clone());
        let claims = vec![claim(&one)];
        let call = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims });
        let answer = in_time(call).await?;
        let answer = answer
            .claims
            .get(one[2])
            .context("no answer for the claim")?;
        match answer.error.as_str() {
            "" => Ok(()),
            error => bail!("{error}"),
        }
    }

    /// Unprepares a claim as a kubelet before 1.34.
    pub async fn unprepare_v1beta1(&self, one: [&str; 3]) -> Result<()> {
        let mut client = v1beta1::dra_plugin_client::DraPluginClient::new(self.channel.clone());
        let claims = vec![claim(&one)];
        let call = client.node_unprepare_resources(NodeUnprepareResourcesRequest { claims });
        in_time(call).await?;
        Ok(())
    }

    /// The first message with the devices' health.
    pub async fn health(&self) -> Result<Vec<DeviceHealth>> {
        let mut client = DraResourceHealthClient::new(self.channel.clone());
        let stream = client
            .node_watch_resources(NodeWatchResourcesRequest {})
            .await?;
        let message = stream.into_inner().message().await?;
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

async fn in_time<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T> {
    let answer = timeout(CALL, call)
        .await
        .context("the call took too long")?;
    Ok(answer?.into_inner())
}
