//! Examines which devices a container was granted, and what authorized them.

use device_class::DeviceClass;
use device_class::config::Config;
use hook::exit::ExitCode;
use hook::planner::PlannerError;
use injection_plan::plan::{InjectionPlan, optional_files};

use super::spec::ContainerSpec;
use crate::command::finding::{Finding, Severity};
use crate::command::missing_follower;

/// Returns the exit code of `boathook doctor` if `planner_error` prevents an injection plan for the
/// container.
pub(super) fn to_exit_code(planner_error: &PlannerError) -> ExitCode {
    match planner_error {
        PlannerError::Origin(_) | PlannerError::Trust(_) => ExitCode::NotGranted,
        planner_error => planner_error.exit_code(),
    }
}

pub(super) fn examine_grants(
    plan: &InjectionPlan,
    spec: &ContainerSpec,
    classes: &[DeviceClass],
    is_verbose: bool,
    config: &Config,
) -> Vec<Finding> {
    const SUBJECT: &str = "devices";
    let mut findings = Vec::new();
    let is_in_a_pod = spec.is_in_a_pod();
    let mut follower_finding = None;
    for grant in &plan.grants {
        let authority = &grant.authorized_by;
        let device_count = grant.devices.len();
        let has_class_steps = plan
            .steps
            .iter()
            .any(|step| step.owners.iter().any(|owner| owner.is_class(&grant.class)));
        let awaited_descriptions: Vec<String> = grant.describe_awaited_devices().collect();
        if !awaited_descriptions.is_empty() {
            follower_finding = missing_follower::find_missing_follower(config);
        }
        findings.extend(awaited_descriptions.into_iter().map(|text| {
            let finding = Finding::new(Severity::Note, SUBJECT, text);
            if grant.available_count == 0 || !grant.similar_devices.is_empty() {
                return finding;
            }
            let class = &grant.class;
            finding.with_fix(format!(
                "`boathook list {class}` shows the names of devices that are there"
            ))
        }));
        let detached_descriptions = grant.describe_detached_names();
        findings
            .extend(detached_descriptions.map(|text| Finding::new(Severity::Note, SUBJECT, text)));
        let is_unexplained = grant.awaited_devices.is_empty() && grant.detached_names.is_empty();
        if device_count > 0 || has_class_steps || grant.available_count == 0 || !is_unexplained {
            let text = match &*grant.describe_devices() {
                "" => format!("no device of {}, by {authority}", grant.class),
                devices => format!("{devices} of {}, by {authority}", grant.class),
            };
            findings.push(Finding::new(Severity::Ok, SUBJECT, text));
            continue;
        }
        let text = format!("no device of {}, by {authority}", grant.class);
        let finding = Finding::new_fault(ExitCode::NotGranted, SUBJECT, text);
        let class = classes.iter().find(|class| class.name == grant.class);
        let resource = class.map_or_else(String::new, |class| class.spec.resource.to_string());
        findings.push(if is_in_a_pod {
            finding.with_fix(format!(
                "set a limit in the pod's container, such as `resources: limits: {resource}: 1`; \
                 a variable alone grants nothing in a pod (trusted_pods in config.toml is the \
                 exception)"
            ))
        } else {
            finding.with_fix(
                "request a device that the class has (`boathook list`); \
                 allow_env_outside_kubernetes in config.toml has to be true",
            )
        });
    }
    findings.extend(follower_finding);
    for (name, value) in &plan.env {
        let text = format!("{name}={value} is not set, and a hook alone cannot set it");
        let finding = Finding::new(Severity::Warning, SUBJECT, text);
        findings.push(finding.with_fix("set it, or use the runtime boathook, which sets it"));
    }
    let to_warning = |text: &String| Finding::new(Severity::Warning, SUBJECT, text);
    findings.extend(plan.warnings.iter().map(to_warning));
    let notes = plan.notes.iter().map(|note| {
        if is_verbose {
            note.into()
        } else {
            optional_files::shorten_note(note)
        }
    });
    findings.extend(notes.map(|text| Finding::new(Severity::Note, SUBJECT, text)));
    findings
}
