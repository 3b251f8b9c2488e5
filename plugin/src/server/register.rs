//! Calls Register at the kubelet's socket. The kubelet then connects to the plugin's socket.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use device_class::name::ResourceName;

use daemon::kubelet_api::deviceplugin::registration_client::RegistrationClient;
use daemon::kubelet_api::deviceplugin::{DevicePluginOptions, RegisterRequest};
use daemon::kubelet_api::{DEVICE_PLUGIN_API_VERSION, connect};

/// The maximum number of characters of the kubelet's message that are quoted in an error.
const MAX_QUOTED_CHARS: usize = 300;

/// Registers the plugin for `resource` with the kubelet. `socket_name` is the file name of the
/// plugin's socket, which is in the same directory as the kubelet's socket. `options` tells which
/// optional calls the plugin supports.
pub(crate) async fn register(
    kubelet_socket_path: &Path,
    socket_name: &str,
    resource: &ResourceName,
    options: DevicePluginOptions,
    timeout: Duration,
) -> anyhow::Result<()> {
    let registration = async {
        let path = kubelet_socket_path.display();
        let describe_connect_error = |error: tonic::transport::Error| {
            // Only the root cause is reported, because the outer errors of the chain say only
            // "transport error".
            let error = anyhow::Error::new(error);
            anyhow!("cannot reach the kubelet at {path}: {}", error.root_cause())
        };
        let channel = connect(kubelet_socket_path)
            .await
            .map_err(describe_connect_error)?;
        let request = RegisterRequest {
            version: DEVICE_PLUGIN_API_VERSION.to_owned(),
            endpoint: socket_name.to_owned(),
            resource_name: resource.to_string(),
            options: Some(options),
        };
        let answer = RegistrationClient::new(channel).register(request).await;
        if let Err(status) = answer {
            let reason = format_status(&status);
            bail!("the kubelet refused the registration: {reason}");
        }
        Ok(())
    };
    // The kubelet tries to connect to the plugin for up to 10 s before it answers.
    tokio::time::timeout(timeout, registration)
        .await
        .unwrap_or_else(|_| {
            let seconds = timeout.as_secs_f32();
            bail!("the kubelet did not answer the registration in {seconds} s")
        })
}

/// Formats a gRPC status as one log line. Shortens its message to [`MAX_QUOTED_CHARS`] and escapes
/// control characters.
fn format_status(status: &tonic::Status) -> String {
    let quoted_chars = status
        .message()
        .chars()
        .take(MAX_QUOTED_CHARS)
        .flat_map(char::escape_debug);
    format!("{:?}: {}", status.code(), quoted_chars.collect::<String>())
}
