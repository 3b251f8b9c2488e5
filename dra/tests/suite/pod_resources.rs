//! A fake of the kubelet's PodResources service, which lists the devices of all pods.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use daemon::kubelet_api::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use daemon::kubelet_api::podresources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, DynamicResource, ListPodResourcesRequest, ListPodResourcesResponse,
    PodResources as Pod,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

/// A server of the PodResources service. Tests change the list that it returns.
#[derive(Clone)]
pub(crate) struct PodResources(Arc<Mutex<Vec<Pod>>>);

/// Returns pods with one container each, by name and devices of the resource dummy.com/npu.
pub(crate) fn pods(of: &[(&str, &[&str])]) -> Vec<Pod> {
    let pod = |&(name, devices): &(&str, &[&str])| Pod {
        name: name.to_owned(),
        namespace: "n".to_owned(),
        containers: vec![ContainerResources {
            name: "c".to_owned(),
            devices: vec![ContainerDevices {
                resource_name: "dummy.com/npu".to_owned(),
                device_ids: devices.iter().map(|id| (*id).to_owned()).collect(),
            }],
            dynamic_resources: Vec::new(),
        }],
    };
    of.iter().map(pod).collect()
}

/// Returns a pod that has a claim of the namespace `n`.
pub(crate) fn pods_with_claim(name: &str) -> Vec<Pod> {
    let mut pods = pods(&[("user", &[])]);
    pods[0].containers[0].dynamic_resources = vec![DynamicResource {
        claim_name: name.to_owned(),
        claim_namespace: "n".to_owned(),
    }];
    pods
}

impl PodResources {
    /// Starts the server at the socket below the kubelet's root directory. It runs until the
    /// test ends.
    pub(crate) fn start(kubelet: &Path) -> Self {
        let directory = kubelet.join("pod-resources");
        fs::create_dir(&directory).unwrap();
        let listener = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
        let served = Self(Arc::default());
        let server = PodResourcesListerServer::new(served.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(server)
            .serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(serving);
        served
    }

    pub(crate) fn lists(&self, pods: Vec<Pod>) {
        *self.0.lock().unwrap() = pods;
    }
}

#[tonic::async_trait]
impl PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources = self.0.lock().unwrap().clone();
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("the driver does not ask"))
    }
}
