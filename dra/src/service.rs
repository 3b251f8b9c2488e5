//! Answers the gRPC calls by which the kubelet prepares and unprepares claims, watches the health
//! of devices, and registers the driver.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::time::Duration;

use anyhow::anyhow;
use daemon::kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use daemon::kubelet_api::dra::{v1, v1beta1};
use daemon::kubelet_api::dra_health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse, dra_resource_health_server::DraResourceHealth,
};
use daemon::kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::Registration,
};
use daemon::kubelet_api::{DRA_PLUGIN_TYPE, DRA_VERSIONS};
use device_class::discover::Health;
use futures::future::join_all;
use futures::{Stream, StreamExt};
use kube::Client;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_stream::wrappers::{IntervalStream, WatchStream};
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::api_error;
use crate::claim::{ClaimConflict, ClaimPreparer, ClaimUid, PrepareError, Record};
use crate::claim_api::build_claims_api;
use crate::claim_cleanup;
use crate::claim_users::ClaimUsers;
use crate::inventory::{FirstScan, Inventory};
use crate::metrics::Metrics;
use crate::names::{self, DRIVER};

/// The interval at which the health of all devices is sent to the kubelet. The kubelet treats the
/// health of a device as unknown after 30 seconds without a message.
const HEALTH_INTERVAL: Duration = Duration::from_secs(10);

/// The time that a call waits for the end of the first scan. It is less than the 45 seconds that
/// the kubelet waits for an answer.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of the message about a device's health, in bytes. A longer message is cut.
const MAX_HEALTH_MESSAGE_BYTES: usize = 1024;

/// The implementation of the gRPC services that the kubelet calls. Each gRPC server of the driver
/// has a clone.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) claims: ClaimPreparer,
    pub(crate) claim_users: ClaimUsers,
    pub(crate) node_name: String,
    pub(crate) inventory: watch::Receiver<Inventory>,
    pub(crate) first_scan: FirstScan,
    pub(crate) metrics: Metrics,
}

impl Service {
    /// Waits for the end of the first scan, because the inventory is empty until then. Fails after
    /// [`FIRST_SCAN_TIMEOUT`].
    async fn wait_for_inventory(&self) -> Result<(), anyhow::Error> {
        let result = tokio::time::timeout(FIRST_SCAN_TIMEOUT, self.first_scan.wait_for_end()).await;
        result.map_err(|_| {
            let seconds = FIRST_SCAN_TIMEOUT.as_secs();
            anyhow!(
                "the first scan of the devices has not ended within {seconds} s, perhaps because \
                 a driver does not answer; the kubelet tries again"
            )
        })
    }

    async fn prepare(&self, claim: &Claim) -> Result<Vec<Device>, anyhow::Error> {
        let uid = ClaimUid::try_from(claim.uid.clone()).map_err(anyhow::Error::msg)?;
        let api = build_claims_api(&self.client, &claim.namespace, &claim.name)?;
        self.wait_for_inventory().await?;
        let answer = api.get(&claim.name).await;
        let api_claim =
            answer.map_err(|error| anyhow::Error::msg(api_error::describe_error(error)))?;
        let prepare = || {
            let (claims, uid, api_claim) = (self.claims.clone(), uid.clone(), api_claim.clone());
            let (inventory, span) = (self.inventory.borrow().clone(), Span::current());
            spawn_blocking(move || span.in_scope(|| claims.prepare(&uid, &api_claim, &inventory)))
        };
        match prepare().await? {
            // Another claim has the device. Perhaps no pod uses that claim any more: a kubelet that
            // has lost a claim from its checkpoint never unprepares the claim. Therefore unused
            // claims are unprepared before the second attempt.
            Err(PrepareError::Conflict(
                ClaimConflict::DeviceInUse { uids, .. } | ClaimConflict::TooFewShares { uids, .. },
            )) => {
                let inventory = self.inventory.borrow().clone();
                let (client, claim_users) = (&self.client, &self.claim_users);
                claim_cleanup::unprepare_unused_claims(
                    client,
                    &self.claims,
                    claim_users,
                    &uids,
                    &inventory,
                )
                .await?;
                Ok(prepare().await??)
            }
            result => Ok(result?),
        }
    }

    async fn unprepare(&self, claim: &Claim) -> Result<(), anyhow::Error> {
        let uid = ClaimUid::try_from(claim.uid.clone()).map_err(anyhow::Error::msg)?;
        self.wait_for_inventory().await?;
        let (claims, inventory) = (self.claims.clone(), self.inventory.borrow().clone());
        let span = Span::current();
        let unprepare = move || span.in_scope(|| claims.unprepare(&uid, &inventory));
        Ok(spawn_blocking(unprepare).await??)
    }

    async fn prepare_all(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Response<NodePrepareResourcesResponse> {
        let claims = request.into_inner().claims;
        let answers = claims.iter().map(async |claim| {
            let start = Instant::now();
            let span = create_claim_span("prepare", claim);
            let result = self.prepare(claim).instrument(span.clone()).await;
            self.metrics
                .observe_prepare(result.is_ok(), start.elapsed());
            let (namespace, name) = (&claim.namespace, &claim.name);
            let answer = match result {
                Ok(devices) => {
                    let count = devices.len();
                    span.in_scope(|| tracing::info!("prepared a claim with {count} devices"));
                    NodePrepareResourceResponse {
                        devices,
                        error: String::new(),
                    }
                }
                Err(error) => {
                    let error = format!("claim {namespace}/{name}: {error:#}");
                    span.in_scope(|| tracing::warn!("cannot prepare {error}"));
                    NodePrepareResourceResponse {
                        devices: Vec::new(),
                        error,
                    }
                }
            };
            (claim.uid.clone(), answer)
        });
        let claims = join_all(answers).await.into_iter().collect();
        Response::new(NodePrepareResourcesResponse { claims })
    }

    async fn unprepare_all(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Response<NodeUnprepareResourcesResponse> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let span = create_claim_span("unprepare", &claim);
            let result = self.unprepare(&claim).instrument(span.clone()).await;
            self.metrics.count_call("unprepare", result.is_ok());
            let error = result.err().map(|error| {
                let (namespace, name) = (&claim.namespace, &claim.name);
                let error = format!("claim {namespace}/{name}: {error:#}");
                span.in_scope(|| tracing::warn!("cannot unprepare {error}"));
                error
            });
            let error = error.unwrap_or_default();
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Response::new(NodeUnprepareResourcesResponse { claims })
    }
}

/// Creates the log span of a call for one claim. The span adds the claim to all log messages of the
/// call. Its level is that of errors, so that warnings have it at each `--log-level`. No field is
/// called `name`, because in a log of JSON lines the key `name` has the name of the span itself.
fn create_claim_span(call: &'static str, claim: &Claim) -> Span {
    let Claim {
        namespace,
        name,
        uid,
    } = claim;
    tracing::error_span!("claim", call, %namespace, claim = %name, %uid)
}

macro_rules! implement_dra_plugin {
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

implement_dra_plugin!(v1);
implement_dra_plugin!(v1beta1);

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
        let repetitions = IntervalStream::new(tokio::time::interval(HEALTH_INTERVAL)).map(drop);
        let (node_name, claims) = (self.node_name.clone(), self.claims.clone());
        let first_scan = self.first_scan.clone();
        let report = move |()| {
            let (node_name, claims, inventory) =
                (node_name.clone(), claims.clone(), inventory.clone());
            let first_scan = first_scan.clone();
            async move {
                first_scan.wait_for_end().await;
                let current_inventory = inventory.borrow().clone();
                let records = spawn_blocking(move || claims.read_records()).await;
                let records = records.ok().and_then(Result::ok).unwrap_or_default().0;
                Ok(build_health_response(
                    &node_name,
                    &current_inventory,
                    &records,
                ))
            }
        };
        Ok(Response::new(Box::pin(
            futures::stream::select(changes, repetitions).then(report),
        )))
    }
}

/// Builds the message with the health of all devices, shares and parts. If a prepared device no
/// longer exists on the host, the message reports it as unhealthy. Otherwise the kubelet would show
/// its last known health for 30 seconds, and then none.
fn build_health_response(
    node_name: &str,
    inventory: &Inventory,
    records: &[Record],
) -> NodeWatchResourcesResponse {
    let now = current_unix_seconds();
    let mut devices = Vec::new();
    let mut reported_names = BTreeSet::new();
    let prepared_devices = records.iter().flat_map(|record| &record.devices);
    let mut add_health = |pool_name: &str, device_name: &str, health: &Health| {
        if !reported_names.insert((pool_name.to_owned(), device_name.to_owned())) {
            return;
        }
        let (health, mut message) = match health {
            Health::Healthy => (HealthStatus::Healthy, String::new()),
            Health::Unhealthy { reason } => (HealthStatus::Unhealthy, reason.clone()),
        };
        let mut boundaries = (0..=MAX_HEALTH_MESSAGE_BYTES.min(message.len())).rev();
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
        let pool_name = names::build_pool_name(node_name, &class.class.name);
        for (device_name, health) in class.list_health() {
            add_health(&pool_name, &device_name, health);
        }
    }
    for device in prepared_devices {
        let reason = format!("{} is no longer among the devices of the host", device.id);
        add_health(&device.pool, &device.device, &Health::Unhealthy { reason });
    }
    NodeWatchResourcesResponse { devices }
}

/// Returns the current time in seconds since 1970. The kubelet shows this time to users.
#[expect(clippy::disallowed_types, reason = "nothing is decided by it")]
fn current_unix_seconds() -> i64 {
    let elapsed = std::time::SystemTime::UNIX_EPOCH.elapsed();
    elapsed.map_or(0, |elapsed| i64::try_from(elapsed.as_secs()).unwrap_or(0))
}

/// The gRPC service that answers the kubelet's plugin watcher, which requests the driver's name. It
/// never waits, because it must answer within a second.
#[derive(Debug, Clone)]
pub(crate) struct Registrar {
    /// The path of the socket at which [`Service`] listens.
    pub(crate) endpoint: String,
    pub(crate) registration_sender: watch::Sender<bool>,
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
        if status.plugin_registered {
            tracing::info!("the kubelet has registered the driver")
        } else {
            tracing::error!("the kubelet refuses the driver: {}", status.error)
        }
        self.registration_sender
            .send_replace(status.plugin_registered);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
