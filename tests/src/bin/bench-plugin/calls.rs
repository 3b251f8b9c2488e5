//! Times calls of a plugin.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use harness::figure::Figure;
use kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use kubelet_api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest,
    PreferredAllocationRequest,
};
use tonic::transport::{Channel, Endpoint};

/// Milliseconds that half and 99 of 100 calls do not exceed.
pub(crate) struct Latency {
    p50: f64,
    p99: f64,
}

impl Latency {
    /// Computes the latency from times in milliseconds.
    fn from_times(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[(times.len() as f64 * part) as usize];
        Latency {
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    /// Its figures with their goals.
    pub(crate) fn figures(&self, name: &str, goals: [Option<f64>; 2]) -> [Figure; 2] {
        [
            Figure::time(&format!("{name} p50"), self.p50, goals[0]),
            Figure::time(&format!("{name} p99"), self.p99, goals[1]),
        ]
    }
}

/// The latency of `calls` calls of Allocate.
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

/// The latency of `calls` calls that ask which `size` of the devices
/// `available` go best together.
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

/// Times one call after the other, over one connection.
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
