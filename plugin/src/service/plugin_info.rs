//! Implements the gRPC service `Registration`, which the kubelet's plugin watcher calls at each
//! socket that it finds.

use device_class::name::ResourceName;
use tonic::{Request, Response, Status};

use daemon::kubelet_api::pluginregistration::registration_server::Registration;
use daemon::kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use daemon::kubelet_api::{DEVICE_PLUGIN_API_VERSION, PLUGIN_TYPE};

#[derive(Debug, Clone)]
pub(crate) struct PluginInfoService {
    pub(crate) resource: ResourceName,
}

#[tonic::async_trait]
impl Registration for PluginInfoService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: self.resource.to_string(),
            // An empty endpoint means that this socket also serves the device plugin API.
            endpoint: String::new(),
            supported_versions: vec![DEVICE_PLUGIN_API_VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus {
            plugin_registered,
            error,
        } = status.into_inner();
        if plugin_registered {
            tracing::info!(resource = %self.resource, "registered by the plugin watcher")
        } else {
            let error = device_class::name::excerpt(&error);
            tracing::warn!(
                resource = %self.resource,
                "the kubelet refused the registration: {error}"
            );
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
