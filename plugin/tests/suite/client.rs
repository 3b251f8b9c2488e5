//! A client of the plugin's socket, for calls that the kubelet never makes.

use std::time::Duration;

use daemon::kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::node::{Node, wait_until};

/// The time after which a call without an answer fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    runtime: Runtime,
    channel: Channel,
}

impl Client {
    /// Connects to the socket of a resource of the node's plugin.
    pub(crate) fn connect(node: &Node, resource: &str) -> Self {
        let socket = node.socket(resource);
        wait_until("the socket", || socket.exists());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = runtime
            .block_on(endpoint.timeout(PATIENCE).connect())
            .unwrap();
        Client { runtime, channel }
    }

    /// Returns the connection, for calls that [`Client::call`] cannot make.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Waits for the result of an asynchronous call.
    pub(crate) fn run<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }

    /// Makes a call of the device plugin's service and waits for its answer.
    pub(crate) fn call<T, F>(
        &self,
        call: impl FnOnce(DevicePluginClient<Channel>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answer = self.run(call(DevicePluginClient::new(self.channel())));
        answer.map(Response::into_inner)
    }
}
