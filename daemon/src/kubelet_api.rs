//! The gRPC interfaces of the kubelet: messages, servers and clients. They are generated from the
//! files in `proto`. The plugin, the DRA driver and the simulated kubelet of the tests use them.
//! This crate only connects to sockets and encodes messages.

mod pod_resources;
mod watcher;

pub use generated::*;
pub use pod_resources::{connect, query_pod_resources};
pub use watcher::WatcherStream;

#[allow(unreachable_pub, unused_qualifications, clippy::all)]
mod generated {
    /// The container runtime interface (CRI), version v1. The kubelet controls an engine with it.
    pub mod cri {
        tonic::include_proto!("runtime.v1");
    }

    /// The device plugin API, version v1beta1. A plugin registers with the kubelet, which then
    /// calls the plugin to list and allocate its devices.
    pub mod deviceplugin {
        tonic::include_proto!("v1beta1");
    }

    /// The API of dynamic resource allocation (DRA). The kubelet calls a DRA driver with it.
    pub mod dra {
        pub mod v1 {
            tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
        }

        /// The same API for kubelets before 1.34. Its messages are the same as those of `v1`.
        pub mod v1beta1 {
            tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
        }
    }

    /// The API with which a DRA driver reports the health of its devices, version v1alpha1.
    pub mod dra_health {
        tonic::include_proto!("v1alpha1");
    }

    /// The registration API, version v1. With it the kubelet's plugin watcher registers device
    /// plugins and DRA drivers.
    pub mod pluginregistration {
        tonic::include_proto!("pluginregistration");
    }

    /// The kubelet's pod resources API, version v1. It lists the devices that the kubelet can
    /// allocate, and the devices that it has allocated to pods.
    pub mod podresources {
        tonic::include_proto!("v1");
    }
}

/// The version of the device plugin API. A plugin states it in the messages of `Register` and
/// `GetInfo`.
pub const DEVICE_PLUGIN_API_VERSION: &str = "v1beta1";

/// The value of `Device.health` for a device that may be allocated.
pub const HEALTHY: &str = "Healthy";

/// The value of `Device.health` for a device that must not be allocated.
pub const UNHEALTHY: &str = "Unhealthy";

/// The value of `PluginInfo.type` for a device plugin.
pub const PLUGIN_TYPE: &str = "DevicePlugin";

/// The value of `PluginInfo.type` for a DRA driver.
pub const DRA_PLUGIN_TYPE: &str = "DRAPlugin";

/// The value of `PluginInfo.supported_versions` for a DRA driver: the services of [`dra::v1`],
/// [`dra::v1beta1`] and [`dra_health`]. Of the `DRAPlugin` versions, the kubelet uses the first one
/// that it supports.
pub const DRA_VERSIONS: [&str; 3] = [
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1alpha1.DRAResourceHealth",
];

/// The file name of the socket on which the kubelet registers device plugins. The socket is in the
/// kubelet's directory for device plugins.
pub const KUBELET_SOCKET_NAME: &str = "kubelet.sock";

/// The path of the socket of the pod resources API. It is relative to the kubelet's root directory.
pub const POD_RESOURCES_SOCKET_PATH: &str = "pod-resources/kubelet.sock";

/// The maximum size in bytes of a gRPC message that the kubelet accepts. It is gRPC's default.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;
