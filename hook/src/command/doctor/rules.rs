//! Examines which devices of the plan the container's cgroup allows now.

use injection_plan::plan::InjectionPlan;

use crate::apply::rules_of;
use crate::cgroup::{DeniedRules, DeviceCgroup};
use crate::command::containers::Container;
use crate::command::finding::{Finding, Verdict};
use crate::exit::ExitCode;
use crate::log::chain;

/// Returns which rules of the plan the cgroup denies. `fix` says what to do about them.
pub(super) fn finding(container: &Container, plan: &InjectionPlan, fix: &str) -> Option<Finding> {
    const SUBJECT: &str = "cgroup";
    let rules = rules_of(plan);
    if rules.is_empty() {
        return None;
    }
    let warning = |text: String| {
        let finding = Finding::new(Verdict::Warning, SUBJECT, text);
        Some(finding.fix("run this as root, in the host's cgroup namespace"))
    };
    let cgroup = match DeviceCgroup::from_pid(container.pid?) {
        Ok(Some(cgroup)) => cgroup,
        Ok(None) => {
            let text = "the host restricts no devices";
            return Some(Finding::new(Verdict::Ok, SUBJECT, text));
        }
        Err(error) => return warning(chain(&error)),
    };
    Some(match cgroup.find_denied_rules(&rules) {
        Err(error) => return warning(chain(&error)),
        Ok(DeniedRules { rules, unreadable }) if !rules.is_empty() || unreadable > 0 => {
            let denied: Vec<String> = rules.iter().map(ToString::to_string).collect();
            match denied.is_empty() {
                true => {
                    let text = format!(
                        "{unreadable} device programs cannot be read, and may deny the devices"
                    );
                    Finding::new(Verdict::Warning, SUBJECT, text)
                        .fix("set net.core.bpf_jit_harden below 2")
                }
                false => {
                    let text = format!("denied: {}", denied.join(", "));
                    Finding::fault(ExitCode::CgroupDenies, SUBJECT, text).fix(fix)
                }
            }
        }
        Ok(_) => Finding::new(Verdict::Ok, SUBJECT, "every device is allowed"),
    })
}
