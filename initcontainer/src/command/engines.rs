//! Chooses the engines that an installation configures.

use std::path::Path;

use anyhow::{Result, bail};
use initcontainer::cli::EngineChoice;
use initcontainer::host::Host;
use runtime_config::{Engine, InstallationRecord, Options, find_docker_snap, program_directories};

use crate::output::Output;

/// Paths that exist if a kubelet, or another client of its runtime interface (CRI), uses
/// containerd.
const SIGNS_OF_PODS: [&str; 3] = ["/var/lib/kubelet", "/etc/kubernetes", "/etc/crictl.yaml"];
/// The name of the kubelet's program, which also shows that pods may use containerd.
const KUBELET: &str = "kubelet";

/// Returns whether something on the host may start pods through containerd. Otherwise containerd
/// serves Docker alone, whose containers do not use containerd's CRI configuration, and
/// configuring containerd would be useless.
fn starts_pods(host: &Host) -> bool {
    let kubelets = program_directories().map(|dir| Path::new(dir).join(KUBELET));
    let signs = SIGNS_OF_PODS.iter().map(|path| Path::new(path).to_owned());
    signs.chain(kubelets).any(|path| host.exists(&path))
}

/// Returns the engines to configure. An engine that was found, but not named, is omitted if it
/// starts no pods.
pub(super) fn choose_engines(
    host: &Host,
    choice: &EngineChoice,
    options: &Options,
    output: &mut Output,
) -> Result<Vec<Engine>> {
    let snap = find_docker_snap(host).map(|program| {
        format!(
            "it is a snap ({}), whose confinement lets it execute no program of the host: install \
             Docker from a package of the distribution or of Docker",
            program.display()
        )
    });
    if let EngineChoice::Named(engines) = choice {
        if let Some(reason) = snap.filter(|_| engines.contains(&Engine::Docker)) {
            bail!("docker: {reason}");
        }
        // If /usr/bin is not visible, as in a container that mounts only the engine's directories,
        // a missing program proves nothing.
        let sees_programs = host.is_dir(Path::new("/usr/bin"));
        let absent = |engine: &&Engine| sees_programs && engine.detect(host).is_none();
        for engine in engines.iter().filter(absent) {
            output.report_note(&format!(
                "{engine}: no program of it was found under {}; it is configured nevertheless, \
                 and `boathook-init uninstall` reverts it",
                host.as_path().display()
            ));
        }
        return Ok(engines.clone());
    }
    let mut chosen = Vec::new();
    if let Some(reason) = &snap {
        output.report_note(&format!("docker: left out: {reason}"));
    }
    let mut found = Engine::ALL.to_vec();
    found.retain(|engine| engine.detect(host).is_some());
    let is_only_dockers = found.contains(&Engine::Docker) && !starts_pods(host);
    for engine in found {
        let record = InstallationRecord::load(host, &host.record(engine))?;
        if engine == Engine::Docker && snap.is_some() {
            continue;
        }
        if engine == Engine::Containerd && record.is_none() && is_only_dockers {
            output.report_note(
                "containerd: left out: Docker uses it, and nothing on this host starts pods; name \
                 it with --engine if something will",
            );
            continue;
        }
        let now = engine.read(host, record.as_ref())?;
        match engine.plan_install(&now, record.as_ref(), options) {
            Err(e @ runtime_config::Error::CriDisabled { .. }) => {
                output.report_note(&format!("{engine}: left out: {e}"));
            }
            _ => chosen.push(engine),
        }
    }
    if chosen.is_empty() {
        let known = Engine::ALL.map(Engine::name).join(", ");
        output.report_note(&format!(
            "no engine to configure was found under {}: name one with --engine ({known}), or \
             use CDI (docs/cdi.md)",
            host.as_path().display()
        ));
    }
    Ok(chosen)
}
