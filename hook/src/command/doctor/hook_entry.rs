//! Checks that the hook is called for the container. An engine that is not configured to use
//! the hook by default calls it only with `--runtime` or `runtimeClassName`, and reports
//! nothing if these are missing.

use runtime_config::HANDLER;

use super::spec::ContainerSpec;
use crate::command::containers::Container;
use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;

pub(super) fn finding(container: &Container, spec: &ContainerSpec, all_there: bool) -> Finding {
    const SUBJECT: &str = "hook";
    if !spec.has_config {
        let text = "no config.json was found for the process, so whether the hook is called \
                    is not known";
        return Finding::new(Verdict::Warning, SUBJECT, text)
            .fix("name the container's bundle with --bundle DIR");
    }
    let Some((stage, hook)) = spec.bundle.hooks.boathook_hooks().next() else {
        let text = "config.json has no boathook hook: neither the runtime boathook, a hooks.d \
                    entry nor a CDI specification was used for this container";
        if all_there {
            let text = format!("{text}; the container has the devices nevertheless");
            return Finding::new(Verdict::Note, SUBJECT, text);
        }
        return Finding::fault(ExitCode::NoHook, SUBJECT, text).fix(fix(container, spec));
    };
    let path = &hook.path;
    if !path.is_file() {
        let text = format!(
            "config.json has the hook {} at {stage}, which is not on this host",
            path.display()
        );
        return Finding::fault(ExitCode::HookMissing, SUBJECT, text)
            .fix("install it with `boathook-init install`, then create the container again");
    }
    let by = match spec.bundle.cdi.is_empty() {
        true => "",
        false => ", by CDI specifications: its arguments name the devices",
    };
    let text = format!("{} is called at {stage}{by}", path.display());
    Finding::new(Verdict::Ok, SUBJECT, text)
}

/// Returns advice on how to make the container's engine call the hook.
fn fix(container: &Container, spec: &ContainerSpec) -> String {
    let annotated = |prefix: &str| {
        let mut keys = spec.bundle.annotations.keys();
        keys.any(|key| key.starts_with(prefix))
    };
    if annotated("io.kubernetes.cri") {
        return format!(
            "give the pod's container a limit of the resource and create the pod again; with \
             containerd 1.x, or where only a variable names the devices, also set \
             `runtimeClassName: {HANDLER}`. `boathook check` says what brings the hook on this \
             node"
        );
    }
    match container.engine() {
        Some("docker") => format!(
            "create the container with `docker run --runtime {HANDLER} ...`, or make it the \
             default with `boathook-init install --engine docker --set-default`"
        ),
        Some("podman" | "crio") => {
            "install the hook with `boathook-init install --engine podman`, \
             then create the container again"
                .to_owned()
        }
        Some(_) => format!(
            "create the container with the runtime handler {HANDLER}; `boathook-init status` \
             shows whether the engine has it"
        ),
        None => "add the hook to config.json, or create the container with `boathook-runtime` in \
                 place of the runtime (docs/engines.md)"
            .to_owned(),
    }
}
