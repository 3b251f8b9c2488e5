//! The Register call, after which the kubelet connects to the plugin's socket.

use std::path::Path;
use std::time::Duration;

use device_class::name::ResourceName;
use tonic::transport::Endpoint;

use kubelet_api::VERSION;
use kubelet_api::deviceplugin::registration_client::RegistrationClient;
use kubelet_api::deviceplugin::{DevicePluginOptions, RegisterRequest};

/// How much of the kubelet's message is quoted, in characters.
const MAX_QUOTE: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("cannot reach the kubelet at {path}: {reason}")]
    Unreachable { path: String, reason: String },
    #[error("the kubelet refused the registration: {0}")]
    Refused(String),
    /// It did not answer. The kubelet connects to the plugin before it answers, for up
    /// to 10 s.
    #[error("the kubelet did not answer the registration in {} s", .0.as_secs_f32())]
    Silent(Duration),
}

/// Registers the plugin that serves `resource` at `socket`, a name in the
/// directory of the kubelet's socket, with the optional calls that it supports.
pub(crate) async fn register(
    kubelet_socket: &Path,
    socket: &str,
    resource: &ResourceName,
    options: DevicePluginOptions,
    timeout: Duration,
) -> Result<(), RegisterError> {
    let asking = async {
        let path = kubelet_socket.display().to_string();
        let unreachable = |error: tonic::transport::Error| RegisterError::Unreachable {
            path: path.clone(),
            reason: innermost(&error),
        };
        let endpoint = Endpoint::from_shared(format!("unix://{path}")).map_err(unreachable)?;
        let channel = endpoint.connect().await.map_err(unreachable)?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: socket.to_owned(),
            resource_name: resource.to_string(),
            options: Some(options),
        };
        let refused = |status: tonic::Status| RegisterError::Refused(one_line(&status));
        RegistrationClient::new(channel)
            .register(request)
            .await
            .map_err(refused)?;
        Ok(())
    };
    tokio::time::timeout(timeout, asking)
        .await
        .unwrap_or(Err(RegisterError::Silent(timeout)))
}

/// The innermost cause: the outer ones are only "transport error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A status as part of a log line: its message may be long and have line breaks.
fn one_line(status: &tonic::Status) -> String {
    let message = status
        .message()
        .chars()
        .take(MAX_QUOTE)
        .flat_map(char::escape_debug);
    format!("{:?}: {}", status.code(), message.collect::<String>())
}
