//! A client of the pod resources API.

use std::path::Path;
use std::time::Duration;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::podresources::pod_resources_lister_client::PodResourcesListerClient;

/// The time limit for an answer of the kubelet.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum size in bytes of an answer, which lists all devices of the node or of all pods.
const MAX_ANSWER: usize = 16 << 20;

/// Connects to a socket of the kubelet or of an engine.
pub async fn connect(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let address = format!("unix://{}", socket.display());
    Endpoint::from_shared(address)?.connect().await
}

/// Calls the kubelet. Returns `None` if there is no answer, because the kubelet does not serve
/// the API or the directory of its socket is not mounted.
pub async fn ask_pod_resources<A>(
    socket: &Path,
    call: impl AsyncFnOnce(&mut PodResourcesListerClient<Channel>) -> Result<A, Status>,
) -> Option<A> {
    let asking = async {
        let channel = connect(socket).await.ok()?;
        let mut client =
            PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        call(&mut client).await.ok()
    };
    tokio::time::timeout(TIMEOUT, asking).await.ok().flatten()
}
