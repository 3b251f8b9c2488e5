//! The kubelet's interfaces, generated from the protos in `proto`: messages, servers and clients.
//! The plugin, the DRA driver and the fake kubelet of the tests use them. The crate decides
//! nothing: it only connects to sockets and encodes messages.
#![forbid(unsafe_code)]

mod pod_resources;
mod watcher;

pub use generated::*;
pub use pod_resources::{ask_pod_resources, connect};
pub use watcher::WatcherStream;

#[allow(unreachable_pub, unused_qualifications, clippy::all)]
mod generated {
    /// The container runtime interface, version v1, by which the kubelet calls an engine.
    pub mod cri {
        tonic::include_proto!("runtime.v1");
    }

    /// The device plugin API, version v1beta1.
    pub mod deviceplugin {
        tonic::include_proto!("v1beta1");
    }

    /// The API for drivers of resource claims.
    pub mod dra {
        pub mod v1 {
            tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
        }

        /// The API with the same messages for kubelets before 1.34.
        pub mod v1beta1 {
            tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
        }
    }

    /// The health of the devices of claims, version v1alpha1.
    pub mod dra_health {
        tonic::include_proto!("v1alpha1");
    }

    /// The plugin watcher API, version v1.
    pub mod pluginregistration {
        tonic::include_proto!("pluginregistration");
    }

    /// The pod resources API, version v1, which lists the devices that the kubelet can allocate,
    /// and the devices of pods.
    pub mod podresources {
        tonic::include_proto!("v1");
    }
}

/// The version of the device plugin API that a plugin states in `Register` and `GetInfo`.
pub const VERSION: &str = "v1beta1";

/// `Device.health` of a device that may be allocated.
pub const HEALTHY: &str = "Healthy";

/// `Device.health` of a device that must not be allocated.
pub const UNHEALTHY: &str = "Unhealthy";

/// `PluginInfo.type` of a device plugin.
pub const PLUGIN_TYPE: &str = "DevicePlugin";

/// `PluginInfo.type` of a driver of resource claims.
pub const DRA_PLUGIN_TYPE: &str = "DRAPlugin";

/// `PluginInfo.supported_versions` of a driver of resource claims: the names of [`dra::v1`],
/// [`dra::v1beta1`] and [`dra_health`]. Of the first two the kubelet uses the first that it knows.
pub const DRA_VERSIONS: [&str; 3] = [
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1alpha1.DRAResourceHealth",
];

/// The name of the socket at which device plugins register. It is in the kubelet's directory for
/// device plugins.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// The path of the socket of the API [`podresources`], relative to the kubelet's root directory.
pub const POD_RESOURCES_SOCKET: &str = "pod-resources/kubelet.sock";

/// The maximum size in bytes of a message that the kubelet accepts: the default limit of gRPC.
pub const MAX_MESSAGE: usize = 4 << 20;
