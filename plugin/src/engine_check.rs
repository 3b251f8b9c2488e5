//! Checks whether the engine of the node reads CDI annotations, by which it learns that it must
//! call the hook. An engine that ignores them starts containers without devices and without an
//! error.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use daemon::kubelet_api::connect;
use daemon::kubelet_api::cri::runtime_service_client::RuntimeServiceClient;
use daemon::kubelet_api::cri::{StatusRequest, VersionRequest, VersionResponse};
use runtime_config::{Engine, LoadCheck};
use serde_json::Value;
use tonic::Code;

/// The time limit for all queries to one engine. An engine that exceeds it makes the check fail.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks whether the engine at `socket` reads CDI annotations, by the engine's version and
/// configuration. Without `socket`, checks every engine that listens at its default path below
/// `host_root`, because only the kubelet knows which engine it uses. Returns the names and versions
/// of the engines, or an error if one of them ignores the annotations.
pub async fn check_engine(host_root: &Path, socket: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let socket_paths = match socket {
        Some(socket) => vec![socket.to_owned()],
        None => list_default_socket_paths(host_root),
    };
    let mut capable_engines = Vec::new();
    for socket in socket_paths.iter().filter(|path| path.exists()) {
        let result = tokio::time::timeout(QUERY_TIMEOUT, query_engine(socket)).await;
        let answer = result.unwrap_or_else(|_| Err("it takes too long".to_owned()));
        let displayed_path = socket.display();
        let answer = answer.map_err(|reason| {
            anyhow!("the engine at {displayed_path} does not answer: {reason}")
        })?;
        // An engine without the kubelet's interface (CRI), such as Docker's containerd, is skipped.
        let Some((version, config)) = answer else {
            continue;
        };
        let engine = format!("{} {}", version.runtime_name, version.runtime_version);
        if let Some(reason) = find_cdi_obstacle(&version, config.as_ref()) {
            bail!(
                "{engine} at {displayed_path} ignores CDI annotations, so containers would start without their \
                 devices: {reason}; use --delivery=handler (the overlay or the chart's value for \
                 the engine)"
            );
        }
        capable_engines.push(engine);
    }
    let shown_paths = socket_paths
        .iter()
        .map(|socket| socket.display().to_string());
    ensure!(
        !capable_engines.is_empty(),
        "no engine with the kubelet's interface (CRI) at {}; name its socket with --socket",
        shown_paths.collect::<Vec<_>>().join(", ")
    );
    Ok(capable_engines)
}

/// Returns the default socket paths of the engines that run pods, such as
/// `/run/containerd/containerd.sock`, below `host_root`.
fn list_default_socket_paths(host_root: &Path) -> Vec<PathBuf> {
    let load_checks = Engine::ALL
        .iter()
        .map(|engine| engine.properties().load_check);
    let socket_paths = load_checks.filter_map(|load_check| match load_check {
        LoadCheck::Socket(path) => Some(host_root.join(path.trim_start_matches('/'))),
        LoadCheck::NoDaemon | LoadCheck::DockerApi => None,
    });
    let mut socket_paths: Vec<PathBuf> = socket_paths.collect();
    socket_paths.dedup();
    socket_paths
}

/// Asks an engine for its name, version and configuration. Returns `None` if the engine does not
/// serve CRI, the kubelet's runtime interface.
async fn query_engine(socket: &Path) -> Result<Option<(VersionResponse, Option<Value>)>, String> {
    let mut client =
        RuntimeServiceClient::new(connect(socket).await.map_err(|error| error.to_string())?);
    let version = match client.version(VersionRequest::default()).await {
        Ok(version) => version.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return Ok(None),
        Err(status) => return Err(status.message().to_owned()),
    };
    let status = client.status(StatusRequest { verbose: true }).await;
    let info = status.map(|status| status.into_inner().info);
    let info = info.map_err(|status| status.message().to_owned())?;
    let config = info.get("config");
    Ok(Some((
        version,
        config.and_then(|text| serde_json::from_str(text).ok()),
    )))
}

/// Returns the reason why an engine ignores CDI annotations, or `None` if it reads them. The
/// engine's own setting counts first, then its version.
fn find_cdi_obstacle(version: &VersionResponse, config: Option<&Value>) -> Option<&'static str> {
    let major_digits = version
        .runtime_version
        .trim_start_matches('v')
        .split('.')
        .next();
    let major_version: u32 = major_digits.and_then(|text| text.parse().ok()).unwrap_or(0);
    let cdi_setting = config.and_then(|config| config["enableCDI"].as_bool());
    match (version.runtime_name.as_str(), cdi_setting) {
        ("containerd", Some(true)) | ("cri-o", _) => None,
        ("containerd", Some(false)) => Some("its option enable_cdi is false"),
        ("containerd", None) if major_version >= 2 => None,
        ("containerd", None) => Some("containerd does since 2.0"),
        _ => Some("only containerd and CRI-O are known to read them"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_engine_is_able_by_its_configuration_and_else_by_its_version() {
        let (on, off) = (json!({"enableCDI": true}), json!({"enableCDI": false}));
        for (name, version, config, capable_engines) in [
            ("containerd", "v2.1.4", None, true),
            ("containerd", "2.0.0~rc1", Some(&on), true),
            ("containerd", "v2.0.0", Some(&off), false),
            ("containerd", "v1.7.27", Some(&off), false),
            ("containerd", "v1.7.27", Some(&on), true),
            ("containerd", "1.6.20~ds1", None, false),
            ("containerd", "", None, false),
            ("cri-o", "1.34.1", None, true),
            ("docker", "28.3.0", None, false),
        ] {
            let answer = VersionResponse {
                runtime_name: name.to_owned(),
                runtime_version: version.to_owned(),
                ..VersionResponse::default()
            };
            assert_eq!(
                find_cdi_obstacle(&answer, config).is_none(),
                capable_engines,
                "{answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn without_an_engine_nothing_is_said_to_be_able() {
        let root = tempfile::tempdir().unwrap();
        let error = check_engine(root.path(), None).await.unwrap_err();
        let socket = "/run/containerd/containerd.sock";
        assert!(error.to_string().contains(socket), "{error}");
    }
}
