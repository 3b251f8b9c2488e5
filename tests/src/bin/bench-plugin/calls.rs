//! Times calls of Allocate.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use plugin::api::deviceplugin::device_plugin_client::DevicePluginClient;
use plugin::api::deviceplugin::{AllocateRequest, ContainerAllocateRequest};
use tonic::transport::Endpoint;

/// Milliseconds that half and 99 of 100 calls do not exceed.
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// The latency of `calls` calls, one after the other, over one connection.
pub(crate) fn allocate(socket: &Path, calls: usize) -> Result<Latency> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?
            .connect()
            .await?;
        let mut client = DevicePluginClient::new(channel);
        let devices_ids = vec!["npu-3".to_owned(), "npu-5".to_owned()];
        let container = ContainerAllocateRequest { devices_ids };
        let request = AllocateRequest {
            container_requests: vec![container],
        };
        let mut times = Vec::with_capacity(calls);
        // The first ones warm up.
        for call in 0..calls + 100 {
            let since = Instant::now();
            client.allocate(request.clone()).await?;
            if call >= 100 {
                times.push(since.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        Ok(Latency {
            p50: at(0.5),
            p99: at(0.99),
        })
    })
}
