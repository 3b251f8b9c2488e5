//! Examines which devices a container was granted, and what authorized them.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::name::excerpt;
use hook::exit::ExitCode;
use hook::planner::PlannerError;
use injection_plan::plan::{Grant, InjectionPlan};

use super::spec::ContainerSpec;
use crate::command::finding::{Finding, Severity};
use crate::command::missing_follower;

const SUBJECT: &str = "devices";

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
        let awaited_findings: Vec<Finding> = examine_awaited_devices(grant).collect();
        // A request that ends with `?` stays valid when its device is unplugged. The container then
        // waits for the device again.
        let may_wait = !awaited_findings.is_empty() || !grant.fulfilled_requests.is_empty();
        if may_wait && !grant.has_access_to_all_devices {
            follower_finding = missing_follower::find_missing_follower(config);
        }
        findings.extend(awaited_findings);
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
            note.to_string()
        } else {
            note.to_short_text()
        }
    });
    findings.extend(notes.map(|text| Finding::new(Severity::Note, SUBJECT, text)));
    findings
}

/// Returns a finding for each device for which the container waits. The finding is a warning if the
/// host has a device with a similar name. The name in the request is then probably mistyped.
fn examine_awaited_devices(grant: &Grant) -> impl Iterator<Item = Finding> {
    let class = &grant.class;
    grant
        .awaited_devices
        .iter()
        .filter_map(move |awaited_device| {
            let text = grant.describe_awaited_device(awaited_device)?;
            let request = awaited_device.to_request_text();
            let has_similar_device = grant.similar_devices.contains_key(&request);
            let severity = if has_similar_device {
                Severity::Warning
            } else {
                Severity::Note
            };
            let mut finding = Finding::new(severity, SUBJECT, text);
            let absence = if grant.devices.is_empty() {
                "no device now: "
            } else {
                ""
            };
            let summary = format!("{absence}waiting for {} of {class}", excerpt(&request));
            finding.summary = Some(summary);
            Some(if grant.available_count == 0 || has_similar_device {
                finding
            } else {
                finding.with_fix(format!(
                    "`boathook list {class}` shows the names of devices that are there"
                ))
            })
        })
}
