//! Examines whether a container has the Linux capabilities that programs need to use the
//! container's devices.

use injection_plan::plan::{CapabilityNeed, CapabilityState, InjectionPlan};

use crate::command::finding::{Finding, Severity};
use crate::command::launcher::Launcher;

/// Returns a finding for each Linux capability that programs may need but the container may not
/// have. None of these findings is a fault, because not every program needs the capability. The
/// advice depends on `launchers`, the programs that may have started the container.
pub(super) fn examine_capabilities(plan: &InjectionPlan, launchers: &[Launcher]) -> Vec<Finding> {
    let needs = plan.needs.iter();
    needs
        .filter_map(|need| examine_need(need, launchers))
        .collect()
}

fn examine_need(need: &CapabilityNeed, launchers: &[Launcher]) -> Option<Finding> {
    const SUBJECT: &str = "capability";
    let text = format!("programs that use {} need {need}", need.class);
    let (severity, fix) = match need.state_in_container {
        Some(CapabilityState::Available) => return None,
        Some(CapabilityState::FileCapabilitiesOnly { .. }) => {
            let name = need.capability.to_string().to_ascii_lowercase();
            let fix = format!(
                "run the program as root, or give its file the capability in the image (`setcap \
                 {name}+ep PROGRAM`)"
            );
            (Severity::Note, fix)
        }
        Some(CapabilityState::Unavailable) => (Severity::Warning, describe_fix(need, launchers)),
        None => (Severity::Note, describe_fix(need, launchers)),
    };
    Some(Finding::new(severity, SUBJECT, text).with_fix(fix))
}

fn describe_fix(need: &CapabilityNeed, launchers: &[Launcher]) -> String {
    let launchers = launchers.iter();
    let descriptions =
        launchers.map(|launcher| launcher.describe_capability_option(need.capability));
    descriptions.collect::<Vec<_>>().join("; or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(in_container: Option<CapabilityState>) -> CapabilityNeed {
        CapabilityNeed {
            class: "tun".to_owned().try_into().unwrap(),
            capability: "CAP_NET_ADMIN".to_owned().try_into().unwrap(),
            purpose: None,
            state_in_container: in_container,
        }
    }

    #[test]
    fn the_fix_has_the_words_of_the_launcher() {
        for (launcher, words) in [
            (
                Launcher::Pod,
                "`securityContext: {capabilities: {add: [NET_ADMIN]}}`",
            ),
            (Launcher::Docker, "compose: `cap_add: [NET_ADMIN]`"),
            (Launcher::Podman, "quadlet: `AddCapability=CAP_NET_ADMIN`"),
            (Launcher::RuntimeHandler, "`--cap-add NET_ADMIN`"),
            (Launcher::OciRuntime, "CAP_NET_ADMIN to bounding, permitted"),
        ] {
            let lacking = need(Some(CapabilityState::Unavailable));
            let finding = examine_need(&lacking, &[launcher]).unwrap();
            assert_eq!(finding.severity, Severity::Warning);
            assert!(finding.fault.is_none());
            let fix = finding.fix.unwrap();
            assert!(fix.contains(words), "{fix}");
        }
    }

    #[test]
    fn a_capability_that_the_container_may_have_is_no_warning() {
        let launchers = [Launcher::Docker, Launcher::Podman];
        let unknown = examine_need(&need(None), &launchers).unwrap();
        assert_eq!(unknown.severity, Severity::Note);
        let fix = unknown.fix.unwrap();
        assert!(fix.contains("compose") && fix.contains("; or ") && fix.contains("quadlet"));
        let not_for_user = need(Some(CapabilityState::FileCapabilitiesOnly { uid: 1000 }));
        let found = examine_need(&not_for_user, &launchers).unwrap();
        assert_eq!(found.severity, Severity::Note);
        assert!(found.fix.unwrap().contains("setcap cap_net_admin+ep"));
        let available = need(Some(CapabilityState::Available));
        assert!(examine_need(&available, &launchers).is_none());
    }
}
