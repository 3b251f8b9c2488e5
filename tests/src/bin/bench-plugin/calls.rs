//! Measures the latency of gRPC calls to a plugin.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use daemon::kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use daemon::kubelet_api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest,
    PreferredAllocationRequest,
};
use harness::figure::Figure;
use tonic::transport::{Channel, Endpoint};

/// The 50th and 99th percentile of the time of a call, in milliseconds.
pub(crate) struct Latency {
    p50: f64,
    p99: f64,
}

impl Latency {
    /// Computes the percentiles of `times`, which are in milliseconds.
    fn from_times(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        Latency {
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    /// Returns the two percentiles as figures with their goals.
    pub(crate) fn figures(&self, name: &str, goals: [Option<f64>; 2]) -> [Figure; 2] {
        [
            Figure::time(&format!("{name} p50"), self.p50, goals[0]),
            Figure::time(&format!("{name} p99"), self.p99, goals[1]),
        ]
    }
}

/// Measures `calls` calls of Allocate.
pub(crate) fn allocate(socket: &Path, calls: usize) -> Result<Latency> {
    let devices_ids = vec!["npu-3".to_owned(), "npu-5".to_owned()];
    let request = AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { devices_ids }],
    };
    timed(socket, calls, async |client| {
        client.allocate(request.clone()).await?;
        Ok(())
    })
}

/// Measures `calls` calls of GetPreferredAllocation, which request the best `size` of the devices
/// `available`.
pub(crate) fn preferred(
    socket: &Path,
    calls: usize,
    available: &[String],
    size: i32,
) -> Result<Latency> {
    let container = ContainerPreferredAllocationRequest {
        available_device_i_ds: available.to_vec(),
        must_include_device_i_ds: Vec::new(),
        allocation_size: size,
    };
    let request = PreferredAllocationRequest {
        container_requests: vec![container],
    };
    timed(socket, calls, async |client| {
        client.get_preferred_allocation(request.clone()).await?;
        Ok(())
    })
}

/// Makes the calls one after another over one connection and returns their times.
fn timed(
    socket: &Path,
    calls: usize,
    mut call: impl AsyncFnMut(&mut DevicePluginClient<Channel>) -> Result<()>,
) -> Result<Latency> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?
            .connect()
            .await?;
        let mut client = DevicePluginClient::new(channel);
        let warm_up = calls / 50;
        let mut times = Vec::with_capacity(calls);
        for number in 0..warm_up + calls {
            let since = Instant::now();
            call(&mut client).await?;
            if number >= warm_up {
                times.push(since.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(Latency::from_times(times))
    })
}
