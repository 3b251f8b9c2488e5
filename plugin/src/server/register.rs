//! The Register call, after which the kubelet connects to the plugin's socket.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use device_class::name::ResourceName;

use kubelet_api::deviceplugin::registration_client::RegistrationClient;
use kubelet_api::deviceplugin::{DevicePluginOptions, RegisterRequest};
use kubelet_api::{VERSION, connect};

/// The maximum number of quoted characters of the kubelet's message.
const MAX_QUOTE: usize = 300;

/// Registers the plugin for `resource` with the kubelet. `socket` is the name of the plugin's
/// socket in the directory of the kubelet's socket, and `options` are the optional calls that the
/// plugin supports.
pub(crate) async fn register(
    kubelet_socket: &Path,
    socket: &str,
    resource: &ResourceName,
    options: DevicePluginOptions,
    timeout: Duration,
) -> anyhow::Result<()> {
    let registering = async {
        let path = kubelet_socket.display();
        let unreachable = |error: tonic::transport::Error| {
            // The outer errors of the chain say only "transport error".
            let error = anyhow::Error::new(error);
            anyhow!("cannot reach the kubelet at {path}: {}", error.root_cause())
        };
        let channel = connect(kubelet_socket).await.map_err(unreachable)?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: socket.to_owned(),
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
    // Before the kubelet answers, it connects to the plugin for up to 10 s.
    tokio::time::timeout(timeout, registering)
        .await
        .unwrap_or_else(|_| {
            let seconds = timeout.as_secs_f32();
            bail!("the kubelet did not answer the registration in {seconds} s")
        })
}

/// Formats a status for a log line. The message is shortened, and its line breaks are escaped.
fn format_status(status: &tonic::Status) -> String {
    let message = status
        .message()
        .chars()
        .take(MAX_QUOTE)
        .flat_map(char::escape_debug);
    format!("{:?}: {}", status.code(), message.collect::<String>())
}
