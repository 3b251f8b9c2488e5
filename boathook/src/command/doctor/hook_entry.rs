//! Examines whether the runtime calls the hook for a container. If the engine does not use the hook
//! by default, the user must set `--runtime` or `runtimeClassName`. The engine does not report a
//! missing setting.

use hook::exit::ExitCode;

use super::spec::ContainerSpec;
use crate::command::containers::EndedContainer;
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::Launcher;

const SUBJECT: &str = "hook";

pub(super) fn examine_hook_entry(
    launcher: Launcher,
    spec: &ContainerSpec,
    is_complete: bool,
) -> Finding {
    if !spec.has_config {
        let text = "no config.json was found for the process, so whether the hook is called \
                    is not known";
        return Finding::new(Severity::Warning, SUBJECT, text)
            .with_fix("name the container's bundle with --bundle DIR");
    }
    let Some((stage, hook)) = spec.bundle.hooks.find_boathook_hooks().next() else {
        let text = "config.json has no boathook hook: neither the runtime boathook, a hooks.d \
                    entry nor a CDI specification was used for this container";
        if is_complete {
            let text = format!("{text}; the container has the devices nevertheless");
            return Finding::new(Severity::Note, SUBJECT, text);
        }
        return Finding::new_fault(ExitCode::HookNotConfigured, SUBJECT, text)
            .with_fix(launcher.describe_container_creation());
    };
    let path = &hook.path;
    if !path.is_file() {
        let text = format!(
            "config.json has the hook {} at {stage}, which is not on this host",
            path.display()
        );
        return Finding::new_fault(ExitCode::HookProgramMissing, SUBJECT, text)
            .with_fix("install it with `boathook-init install`, then create the container again");
    }
    let cdi_note = if spec.bundle.cdi_grants.is_empty() {
        ""
    } else {
        ", by CDI specifications: its arguments name the devices"
    };
    let text = format!("{} is called at {stage}{cdi_note}", path.display());
    Finding::new(Severity::Ok, SUBJECT, text)
}

/// Returns a fault if Docker used a runtime that certainly does not call the hook. A runtime with
/// an unknown name may be Boathook's. A container with CDI device names has no fault, because it
/// needs no special runtime.
pub(super) fn examine_ended_container(
    ended_container: &EndedContainer,
    launcher: Launcher,
) -> Option<Finding> {
    let runtime = ended_container.runtime.as_deref()?;
    ended_container.has_runtime_without_hook().then(|| {
        let text = format!("docker was told to use the runtime {runtime}, which calls no hook");
        let fault = Finding::new_fault(ExitCode::HookNotConfigured, SUBJECT, text);
        fault.with_fix(launcher.describe_container_creation())
    })
}
