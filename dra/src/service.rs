//! Answers the kubelet's calls.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::time::Duration;

use device_class::discover::Health;
use futures::future::join_all;
use futures::{Stream, StreamExt};
use kube::Client;
use kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use kubelet_api::dra::{v1, v1beta1};
use kubelet_api::dra_health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse, dra_resource_health_server::DraResourceHealth,
};
use kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::Registration,
};
use kubelet_api::{DRA_PLUGIN_TYPE, DRA_VERSIONS};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_stream::wrappers::{IntervalStream, WatchStream};
use tonic::{Request, Response, Status};

use crate::api_error;
use crate::claim::{ClaimUid, Claims, PrepareError, Record};
use crate::claim_api::claims_with;
use crate::claim_users::ClaimUsers;
use crate::collect;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::names::{self, DRIVER};

/// The time between two messages with the health of all devices. The kubelet considers the
/// health of a device unknown if it does not receive it for 30 seconds.
const REPEAT: Duration = Duration::from_secs(10);

/// The maximum length in bytes of the message for a device's health.
const MAX_MESSAGE: usize = 1024;

/// The driver, as the kubelet calls it.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) claims: Claims,
    pub(crate) users: ClaimUsers,
    pub(crate) node: String,
    pub(crate) inventory: watch::Receiver<Inventory>,
    pub(crate) metrics: Metrics,
}

impl Service {
    async fn prepare(&self, claim: &Claim) -> Result<Vec<Device>, anyhow::Error> {
        let uid = ClaimUid::try_from(claim.uid.clone()).map_err(anyhow::Error::msg)?;
        let api = claims_with(&self.client, &claim.namespace, &claim.name)?;
        let answer = api.get(&claim.name).await;
        let answer = answer.map_err(|error| anyhow::Error::msg(api_error::text(error)))?;
        let prepare = || {
            let (claims, uid, answer) = (self.claims.clone(), uid.clone(), answer.clone());
            let inventory = self.inventory.borrow().clone();
            spawn_blocking(move || claims.prepare(&uid, &answer, &inventory))
        };
        match prepare().await? {
            // The kubelet never unprepares a claim of which it lost its own record, for
            // instance when its directory was removed.
            Err(PrepareError::Held { uids, .. } | PrepareError::TooFew { uids, .. }) => {
                let inventory = self.inventory.borrow().clone();
                let (client, users) = (&self.client, &self.users);
                collect::unprepare_unused(client, &self.claims, users, &uids, &inventory).await?;
                Ok(prepare().await??)
            }
            prepared => Ok(prepared?),
        }
    }

    async fn unprepare(&self, claim: &Claim) -> Result<(), anyhow::Error> {
        let uid = ClaimUid::try_from(claim.uid.clone()).map_err(anyhow::Error::msg)?;
        let (claims, inventory) = (self.claims.clone(), self.inventory.borrow().clone());
        Ok(spawn_blocking(move || claims.unprepare(&uid, &inventory)).await??)
    }

    async fn prepare_all(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Response<NodePrepareResourcesResponse> {
        let claims = request.into_inner().claims;
        let each = claims.iter().map(async |claim| {
            let start = Instant::now();
            let prepared = self.prepare(claim).await;
            self.metrics.prepared(prepared.is_ok(), start.elapsed());
            let (namespace, name) = (&claim.namespace, &claim.name);
            let answer = match prepared {
                Ok(devices) => {
                    let count = devices.len();
                    tracing::info!(%namespace, %name, "prepared a claim with {count} devices");
                    NodePrepareResourceResponse {
                        devices,
                        error: String::new(),
                    }
                }
                Err(error) => {
                    let error = format!("claim {namespace}/{name}: {error:#}");
                    tracing::warn!("cannot prepare {error}");
                    NodePrepareResourceResponse {
                        devices: Vec::new(),
                        error,
                    }
                }
            };
            (claim.uid.clone(), answer)
        });
        let claims = join_all(each).await.into_iter().collect();
        Response::new(NodePrepareResourcesResponse { claims })
    }

    async fn unprepare_all(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Response<NodeUnprepareResourcesResponse> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let result = self.unprepare(&claim).await;
            self.metrics.called("unprepare", result.is_ok());
            let error = result.err().map(|error| {
                let (namespace, name) = (&claim.namespace, &claim.name);
                let error = format!("claim {namespace}/{name}: {error:#}");
                tracing::warn!("cannot unprepare {error}");
                error
            });
            let error = error.unwrap_or_default();
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Response::new(NodeUnprepareResourcesResponse { claims })
    }
}

macro_rules! serve {
    ($version:ident) => {
        #[tonic::async_trait]
        impl $version::dra_plugin_server::DraPlugin for Service {
            async fn node_prepare_resources(
                &self,
                request: Request<NodePrepareResourcesRequest>,
            ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
                Ok(self.prepare_all(request).await)
            }

            async fn node_unprepare_resources(
                &self,
                request: Request<NodeUnprepareResourcesRequest>,
            ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
                Ok(self.unprepare_all(request).await)
            }
        }
    };
}

serve!(v1);
serve!(v1beta1);

#[tonic::async_trait]
impl DraResourceHealth for Service {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let inventory = self.inventory.clone();
        let changes = WatchStream::from_changes(inventory.clone()).map(drop);
        let repetitions = IntervalStream::new(tokio::time::interval(REPEAT)).map(drop);
        let (node, claims) = (self.node.clone(), self.claims.clone());
        let report = move |()| {
            let (node, claims, current) =
                (node.clone(), claims.clone(), inventory.borrow().clone());
            async move {
                let records = spawn_blocking(move || claims.prepared()).await;
                let records = records.ok().and_then(Result::ok).unwrap_or_default().0;
                Ok(health(&node, &current, &records))
            }
        };
        Ok(Response::new(Box::pin(
            futures::stream::select(changes, repetitions).then(report),
        )))
    }
}

/// Returns the health of all devices, with the names of the devices, their shares and their
/// parts. A prepared device that the host no longer has is unhealthy: the kubelet would show the
/// last health that it knows for 30 seconds, and then none.
fn health(node: &str, inventory: &Inventory, prepared: &[Record]) -> NodeWatchResourcesResponse {
    let now = now();
    let mut devices = Vec::new();
    let mut names = BTreeSet::new();
    let prepared = prepared.iter().flat_map(|record| &record.devices);
    let mut add = |pool_name: &str, device_name: &str, health: &Health| {
        if !names.insert((pool_name.to_owned(), device_name.to_owned())) {
            return;
        }
        let (health, mut message) = match health {
            Health::Healthy => (HealthStatus::Healthy, String::new()),
            Health::Unhealthy { reason } => (HealthStatus::Unhealthy, reason.clone()),
        };
        let mut boundaries = (0..=MAX_MESSAGE.min(message.len())).rev();
        let end = boundaries.find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
        devices.push(DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: pool_name.to_owned(),
                device_name: device_name.to_owned(),
            }),
            health: health.into(),
            last_updated_time: now,
            health_check_timeout_seconds: 0,
            message,
        });
    };
    for class in inventory.iter() {
        let pool_name = names::pool(node, &class.class.name);
        for (device_name, health) in class.list_health() {
            add(&pool_name, &device_name, health);
        }
    }
    for device in prepared {
        let reason = format!("{} is no longer among the devices of the host", device.id);
        add(&device.pool, &device.device, &Health::Unhealthy { reason });
    }
    NodeWatchResourcesResponse { devices }
}

/// Returns the seconds since 1970, which the kubelet shows to users.
#[expect(clippy::disallowed_types, reason = "nothing is decided by it")]
fn now() -> i64 {
    let elapsed = std::time::SystemTime::UNIX_EPOCH.elapsed();
    elapsed.map_or(0, |elapsed| i64::try_from(elapsed.as_secs()).unwrap_or(0))
}

/// Answers the kubelet's plugin watcher, which asks for the driver's name. The answer must
/// come within a second, so that nothing is waited for.
#[derive(Debug, Clone)]
pub(crate) struct Registrar {
    /// The socket of [`Service`].
    pub(crate) endpoint: String,
    pub(crate) registered: watch::Sender<bool>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: DRA_PLUGIN_TYPE.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: DRA_VERSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        match status.plugin_registered {
            true => tracing::info!("the kubelet has registered the driver"),
            false => tracing::error!("the kubelet refuses the driver: {}", status.error),
        }
        self.registered.send_replace(status.plugin_registered);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
