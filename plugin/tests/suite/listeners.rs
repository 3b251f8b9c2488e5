//! Clients that open ListAndWatch at a plugin's socket, in larger numbers than any kubelet
//! would.

use std::path::Path;

use daemon::kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use daemon::kubelet_api::deviceplugin::{Empty, ListAndWatchResponse};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::node::PATIENCE;

/// The smallest window that HTTP/2 has unless the two sides agree otherwise
/// (RFC 9113, section 6.9.2).
const NARROW: u32 = 65_535;

fn address(socket: &Path) -> Endpoint {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap()
}

/// Open ListAndWatch streams. Dropping this value cancels the streams and closes their
/// connections.
pub(crate) struct Listeners {
    streams: Vec<Streaming<ListAndWatchResponse>>,
    connections: Vec<Channel>,
    /// The runtime has its own thread, which handles the connections while the test does other
    /// things.
    runtime: Runtime,
}

impl Listeners {
    /// Opens `each` streams on each of `connections` connections.
    pub(crate) fn open(socket: &Path, connections: usize, each: usize) -> Self {
        Self::open_at(address(socket), connections, each)
    }

    /// Opens a stream on each of `connections` connections. The stream's window is 64 KiB: the
    /// server cannot send more before the client reads.
    pub(crate) fn open_narrow(socket: &Path, connections: usize) -> Self {
        let narrow = address(socket).initial_stream_window_size(NARROW);
        Self::open_at(narrow, connections, 1)
    }

    fn open_at(address: Endpoint, connections: usize, each: usize) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let opening = async {
            let (mut channels, mut streams) = (Vec::new(), Vec::new());
            for _ in 0..connections {
                let channel = address.connect().await.unwrap();
                let mut client = DevicePluginClient::new(channel.clone());
                for _ in 0..each {
                    let stream = client.list_and_watch(Empty {}).await.unwrap();
                    streams.push(stream.into_inner());
                }
                channels.push(channel);
            }
            (channels, streams)
        };
        let (connections, streams) = runtime.block_on(opening);
        Listeners {
            streams,
            connections,
            runtime,
        }
    }

    /// Returns the number of devices in the next message of each stream, or `None` for a
    /// stream that has ended.
    pub(crate) fn next(&mut self) -> Vec<Option<usize>> {
        let streams = &mut self.streams;
        self.runtime.block_on(async {
            let mut sizes = Vec::new();
            for stream in streams {
                let next = timeout(PATIENCE, stream.message()).await.unwrap();
                // The end of the process may break a stream.
                sizes.push(next.ok().flatten().map(|list| list.devices.len()));
            }
            sizes
        })
    }

    /// Reads each stream until a message has `wanted` devices. Returns the total number of
    /// messages.
    pub(crate) fn read_until(&mut self, wanted: usize) -> usize {
        let streams = &mut self.streams;
        self.runtime.block_on(async {
            let mut messages = 0;
            for stream in streams {
                let mut told = None;
                while told != Some(wanted) {
                    let next = timeout(PATIENCE, stream.message()).await.unwrap();
                    told = Some(next.unwrap().unwrap().devices.len());
                    messages += 1;
                }
            }
            messages
        })
    }

    /// Cancels the streams but keeps the connections open.
    pub(crate) fn cancel(&mut self) {
        self.streams.clear();
        assert!(!self.connections.is_empty());
    }
}
