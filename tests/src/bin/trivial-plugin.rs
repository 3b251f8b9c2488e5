//! `trivial-plugin DIRECTORY RESOURCE DEVICES [CDI-NAME]`: a device plugin that only registers once and
//! answers, with this CDI device for each container. Beside it `make test-kubernetes` shows what of a
//! restart is the kubelet's own time. With a CDI device it is the plugin of another vendor.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use daemon::kubelet_api::deviceplugin::RegisterRequest;
use daemon::kubelet_api::deviceplugin::registration_client::RegistrationClient;
use daemon::kubelet_api::{DEVICE_PLUGIN_API_VERSION, KUBELET_SOCKET_NAME, connect};
use harness::exit;
use harness::kubelet::other_plugin;

const SOCKET: &str = "trivial.sock";

fn main() -> ExitCode {
    exit::with("trivial-plugin", run())
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, resource, devices, names @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: trivial-plugin DIRECTORY RESOURCE DEVICES [CDI-NAME]");
    };
    let directory = Path::new(directory);
    let socket = directory.join(SOCKET);
    let _ = std::fs::remove_file(&socket);
    let devices = devices.parse().context("DEVICES is a number")?;
    let runtime = other_plugin::serve_devices(&socket, devices, names.first().cloned())?;
    runtime.block_on(async {
        let channel = connect(&directory.join(KUBELET_SOCKET_NAME)).await?;
        let request = RegisterRequest {
            version: DEVICE_PLUGIN_API_VERSION.to_owned(),
            endpoint: SOCKET.to_owned(),
            resource_name: resource.clone(),
            options: None,
        };
        RegistrationClient::new(channel).register(request).await?;
        std::future::pending().await
    })
}
