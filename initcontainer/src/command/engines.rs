//! Chooses the engines that an installation configures: those that `--engine` names, or those that
//! are found on the host.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use initcontainer::cli::EngineChoice;
use initcontainer::host::Host;
use runtime_config::{
    Engine, InstallOptions, InstallationRecord, find_docker_snap, program_directories,
};

use crate::output::Output;

/// The paths that show that a kubelet, or another client of the container runtime interface (CRI),
/// may use containerd. One existing path is enough.
const CRI_CLIENT_PATHS: [&str; 3] = ["/var/lib/kubelet", "/etc/kubernetes", "/etc/crictl.yaml"];
/// The name of the kubelet's program. If a host has this program, its kubelet may start pods
/// through containerd.
const KUBELET_PROGRAM: &str = "kubelet";

/// Returns whether a program of the host may start pods through containerd. If no program does,
/// containerd serves only Docker. Docker's containers do not use containerd's CRI configuration, so
/// it would be useless to change that configuration.
fn is_containerd_used_for_pods(host: &Host) -> bool {
    let kubelet_paths = program_directories().map(|dir| Path::new(dir).join(KUBELET_PROGRAM));
    let pod_paths = CRI_CLIENT_PATHS.iter().map(PathBuf::from);
    pod_paths
        .chain(kubelet_paths)
        .any(|path| host.exists(&path))
}

/// Returns the engines to configure: those that `engine_choice` names, or all that were found on
/// the host. A found engine is left out with a note if it cannot be configured, or if it is a
/// containerd that only Docker uses.
pub(super) fn choose_engines(
    host: &Host,
    engine_choice: &EngineChoice,
    options: &InstallOptions,
    output: &mut Output,
) -> Result<Vec<Engine>> {
    let docker_snap_refusal = find_docker_snap(host).map(|program| {
        format!(
            "it is a snap ({}), whose confinement lets it execute no program of the host: install \
             Docker from a package of the distribution or of Docker",
            program.display()
        )
    });
    if let EngineChoice::Engines(engines) = engine_choice {
        if let Some(reason) = docker_snap_refusal.filter(|_| engines.contains(&Engine::Docker)) {
            bail!("docker: {reason}");
        }
        // In a container that mounts only the engine's directories, /usr/bin does not exist. Then
        // the engine may be installed although no program of it is found.
        let are_programs_visible = host.is_dir(Path::new("/usr/bin"));
        let is_undetected =
            |engine: &&Engine| are_programs_visible && engine.detect(host).is_none();
        for engine in engines.iter().filter(is_undetected) {
            output.report_note(&format!(
                "{engine}: no program of it was found under {}; it is configured nevertheless, \
                 and `boathook-init uninstall` reverts it",
                host.as_path().display()
            ));
        }
        return Ok(engines.clone());
    }
    let mut configurable_engines = Vec::new();
    if let Some(reason) = &docker_snap_refusal {
        output.report_note(&format!("docker: left out: {reason}"));
    }
    let mut detected_engines = Engine::ALL.to_vec();
    detected_engines.retain(|engine| engine.detect(host).is_some());
    let serves_only_docker =
        detected_engines.contains(&Engine::Docker) && !is_containerd_used_for_pods(host);
    for engine in detected_engines {
        let record = InstallationRecord::load(host, &host.record_path(engine))?;
        if engine == Engine::Docker && docker_snap_refusal.is_some() {
            continue;
        }
        if engine == Engine::Containerd && record.is_none() && serves_only_docker {
            output.report_note(
                "containerd: left out: Docker uses it, and nothing on this host starts pods; name \
                 it with --engine if something will",
            );
            continue;
        }
        let snapshot = engine.read_snapshot(host, record.as_ref())?;
        match engine.plan_install(&snapshot, record.as_ref(), options) {
            Err(e @ runtime_config::Error::CriDisabled { .. }) => {
                output.report_note(&format!("{engine}: left out: {e}"));
            }
            _ => configurable_engines.push(engine),
        }
    }
    if configurable_engines.is_empty() {
        let known_names = Engine::ALL.map(Engine::name).join(", ");
        output.report_note(&format!(
            "no engine to configure was found under {}: name one with --engine ({known_names}), or \
             use CDI (docs/cdi.md)",
            host.as_path().display()
        ));
    }
    Ok(configurable_engines)
}
