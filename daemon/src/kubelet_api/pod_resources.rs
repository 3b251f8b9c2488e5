//! A client of the kubelet's pod resources API, which lists the devices of pods.

use std::path::Path;
use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::kubelet_api::podresources::pod_resources_lister_client::PodResourcesListerClient;

/// The time limit for a whole query: connecting to the kubelet and receiving its response.
const POD_RESOURCES_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum size in bytes of the kubelet's response. The response lists all devices of the node,
/// or the devices of all pods. A larger response counts as a failure.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Connects to the gRPC server on a Unix socket, for example to the kubelet or to an engine.
pub async fn connect(socket_path: &Path) -> Result<Channel, tonic::transport::Error> {
    let address = format!("unix://{}", socket_path.display());
    Endpoint::from_shared(address)?.connect().await
}

/// Connects to the kubelet and makes one call of the pod resources API. Returns `None` after any
/// failure. For example, the kubelet may not serve this API, or its socket may not be mounted in
/// this container.
pub async fn query_pod_resources<A>(
    socket_path: &Path,
    call: impl AsyncFnOnce(&mut PodResourcesListerClient<Channel>) -> Result<A, Status>,
) -> Option<A> {
    let answer = async {
        let channel = connect(socket_path).await.ok()?;
        let mut client =
            PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
        call(&mut client).await.ok()
    };
    tokio::time::timeout(POD_RESOURCES_TIMEOUT, answer)
        .await
        .ok()
        .flatten()
}
