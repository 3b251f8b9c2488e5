//! Examines whether the container's cgroup now allows access to the devices of the injection plan.

use hook::apply::list_planned_rules;
use hook::cgroup::{DeniedRules, DeviceCgroup};
use hook::exit::ExitCode;
use hook::log::format_error_chain;
use injection_plan::plan::InjectionPlan;

use crate::command::containers::Container;
use crate::command::finding::{Finding, Severity};

/// Returns a finding about the device rules of the plan that the container's cgroup denies. The
/// finding contains the advice `fix` if a rule is denied.
pub(super) fn examine_device_rules(
    container: &Container,
    plan: &InjectionPlan,
    fix: &str,
) -> Option<Finding> {
    const SUBJECT: &str = "cgroup";
    let rules = list_planned_rules(plan);
    if rules.is_empty() {
        return None;
    }
    let to_warning = |text: String| {
        let finding = Finding::new(Severity::Warning, SUBJECT, text);
        Some(finding.with_fix("run this as root, in the host's cgroup namespace"))
    };
    let cgroup = match DeviceCgroup::from_pid(container.pid?) {
        Ok(Some(cgroup)) => cgroup,
        Ok(None) => {
            let text = "the host restricts no devices";
            return Some(Finding::new(Severity::Ok, SUBJECT, text));
        }
        Err(error) => return to_warning(format_error_chain(&error)),
    };
    Some(match cgroup.find_denied_rules(&rules) {
        Err(error) => return to_warning(format_error_chain(&error)),
        Ok(DeniedRules {
            rules,
            unreadable_program_count,
        }) if !rules.is_empty() || unreadable_program_count > 0 => {
            let denied: Vec<String> = rules.iter().map(ToString::to_string).collect();
            if denied.is_empty() {
                let text = format!(
                    "{unreadable_program_count} device programs cannot be read, and may deny the devices"
                );
                Finding::new(Severity::Warning, SUBJECT, text)
                    .with_fix("set net.core.bpf_jit_harden below 2")
            } else {
                let text = format!("denied: {}", denied.join(", "));
                Finding::new_fault(ExitCode::CgroupDenies, SUBJECT, text).with_fix(fix)
            }
        }
        Ok(_) => Finding::new(Severity::Ok, SUBJECT, "every device is allowed"),
    })
}
