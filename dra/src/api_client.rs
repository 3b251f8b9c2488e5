//! The clients of the API server.

use std::time::Duration;

use anyhow::Context;
use kube::{Client, Config};

/// The time after which a request fails if the API server sends nothing. The client has no such
/// limit by default. An API server that has disappeared, for example behind a load balancer, would
/// then delay the driver until the kernel gives the connection up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The clients of the API server. The pod's service account or a kubeconfig file configures them.
#[derive(Clone)]
pub(crate) struct ApiClients {
    /// The client for requests that end with an answer.
    pub(crate) requests: Client,
    /// The client for watches. A watch has no time limit, because the API server may send nothing
    /// for minutes.
    pub(crate) watches: Client,
}

impl ApiClients {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let config = Config::infer().await.map_err(kube::Error::InferConfig);
        let clients = config.and_then(|config| Self::from_config(config, REQUEST_TIMEOUT));
        clients.context("cannot configure the client of the API server")
    }

    fn from_config(config: Config, request_timeout: Duration) -> kube::Result<Self> {
        let mut request_config = config.clone();
        request_config.read_timeout = Some(request_timeout);
        Ok(ApiClients {
            requests: Client::try_from(request_config)?,
            watches: Client::try_from(config)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// The server accepts connections and never answers.
    #[tokio::test]
    async fn a_request_without_an_answer_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let clients = ApiClients::from_config(config, Duration::from_millis(50)).unwrap();
        let api = Api::<Node>::all(clients.requests);
        let answer = timeout(Duration::from_secs(30), api.get("worker")).await;
        assert!(answer.expect("no time limit").is_err());
        let api = Api::<Node>::all(clients.watches);
        let answer = timeout(Duration::from_millis(500), api.get("worker")).await;
        assert!(answer.is_err(), "a watch has no time limit");
    }
}
