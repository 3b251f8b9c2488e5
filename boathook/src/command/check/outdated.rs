//! Finds running containers that have outdated driver files. When the host's driver is updated, a
//! running container keeps the old files. They may be incompatible with the new kernel module.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::name::{ClassName, excerpt};
use hook::apply;
use hook::attachment;
use hook::oci::Bundle;
use hook::planner::{self, Caller};
use hook::trust::ContainerOrigin;
use injection_plan::plan::{Action, Grant};

use crate::command::containers::{self, Container};
use crate::command::finding::{Finding, Severity};
use crate::command::launcher::Launcher;
use crate::command::running_root::{self, RunningContainerRoot};

/// The maximum number of file names in one finding. Further files are only counted.
const MAX_SHOWN_NAMES: usize = 4;

/// Returns a warning for each running container that has outdated driver files. If `class_names` is
/// not empty, checks only containers with devices of these classes.
pub(super) fn check_driver_files(
    class_names: &[ClassName],
    state_root: Option<PathBuf>,
    config: &Config,
) -> Vec<Finding> {
    let running_containers = containers::find_running_containers(state_root, &config.host_root);
    let findings = running_containers.filter_map(|(container, pid, bundle_dir)| {
        let inspect = || find_outdated_files(pid, &bundle_dir, class_names, config);
        let Some(outdated_files) = running_root::run_in_child(inspect) else {
            let text = format!(
                "{}, pid {pid}, cannot be looked at: a file system in it does not answer",
                excerpt(&container.id)
            );
            return Some(Finding::new(Severity::Warning, "container", text));
        };
        let (file_names, is_host_version) = outdated_files?;
        let (shown_names, omitted_names) =
            file_names.split_at(file_names.len().min(MAX_SHOWN_NAMES));
        let omitted_note = match omitted_names.len() {
            0 => String::new(),
            omitted_count => format!(" and {omitted_count} more"),
        };
        let version_note = match is_host_version {
            None => "",
            Some(true) => "; its libraries are of the host's version",
            Some(false) => {
                "; its libraries are of another version than the host's, and may not fit the \
                 kernel's module"
            }
        };
        let text = format!(
            "{}, pid {pid}, has other files of the driver than the host has now: {}{omitted_note}{version_note}",
            excerpt(&container.id),
            shown_names.join(", ")
        );
        let finding = Finding::new(Severity::Warning, "container", text);
        Some(finding.with_fix(format!(
            "{}, so that it gets them; `boathook refresh` gives them to programs that are \
                 started in it from now on",
            describe_restart(&container, &bundle_dir)
        )))
    });
    findings.collect()
}

fn describe_restart(container: &Container, bundle_dir: &Path) -> &'static str {
    let bundle = Bundle::read(bundle_dir);
    let origin = bundle.as_ref().ok().map(ContainerOrigin::from_bundle);
    let is_in_a_pod = matches!(origin, Some(Ok(ContainerOrigin::Pod(_))));
    match Launcher::from_container(container, is_in_a_pod) {
        Launcher::Pod => "delete the pod",
        Launcher::Docker => "restart it (docker restart)",
        Launcher::Podman => "restart it (podman restart)",
        Launcher::RuntimeHandler | Launcher::OciRuntime => "restart it",
    }
}

/// The names of a container's outdated files, and whether the host's driver still has the version
/// of the outdated libraries. The second value is `None` if no library is outdated.
type OutdatedFiles = (Vec<String>, Option<bool>);

/// Finds the outdated driver files of the container whose init process is `pid` and whose OCI
/// bundle is in `bundle_dir`. Returns `None` if there are none.
fn find_outdated_files(
    pid: i32,
    bundle_dir: &Path,
    class_names: &[ClassName],
    config: &Config,
) -> Option<OutdatedFiles> {
    let mut bundle = Bundle::read(bundle_dir).ok()?;
    bundle.use_root_of_process(pid);
    attachment::add_recorded_requests(&mut bundle, bundle_dir, &config.host_root);
    let plan = planner::plan_container_injection(&bundle, &Caller::PlanInspector, config).ok()?;
    let is_selected = |grant: &Grant| class_names.contains(&grant.class);
    if !class_names.is_empty() && !plan.grants.iter().any(is_selected) {
        return None;
    }
    let root = RunningContainerRoot::from_pid(pid);
    let look_up = |path: &Path| root.look_up(path);
    let is_outdated =
        |action: &Action| apply::is_outdated(action, &config.host_root, &look_up) == Some(true);
    let outdated_actions: Vec<&Action> = plan
        .steps
        .iter()
        .map(|step| &step.action)
        .filter(|action| is_outdated(action))
        .collect();
    let version_matches = outdated_actions.iter().filter_map(|action| match action {
        Action::Library { mount, .. } => {
            Some(look_up(&mount.path).is_ok_and(|file| file.is_some()))
        }
        _ => None,
    });
    // `false` is less than `true`, so `min` returns `false` if one library has another version.
    let is_host_version = version_matches.min();
    let file_names: Vec<String> = outdated_actions
        .into_iter()
        .filter_map(find_source_file_name)
        .collect();
    (!file_names.is_empty()).then_some((file_names, is_host_version))
}

fn find_source_file_name(action: &Action) -> Option<String> {
    let (Action::File(mount) | Action::Directory(mount) | Action::Library { mount, .. }) = action
    else {
        return None;
    };
    let name = mount.source.file_name()?;
    Some(name.to_string_lossy().into_owned())
}
