//! Device rules of records, each with what it is for.

use device_class::device::DeviceRule;
use injection_plan::plan::{Action, InjectionStep};
use serde::{Deserialize, Serialize};

/// A device rule, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) rule: String,
    /// The keys of devices or the class that it is for. None: it stays.
    #[serde(rename = "for")]
    pub(crate) why: Vec<String>,
}

impl Rule {
    /// A rule that is for what a step is for.
    pub(super) fn of(rule: DeviceRule, step: &InjectionStep) -> Self {
        Rule {
            rule: rule.to_string(),
            why: step.users.clone(),
        }
    }
}

/// Rules without what they are for.
pub(crate) fn parsed(rules: &[Rule]) -> Vec<DeviceRule> {
    let rules = rules.iter();
    rules
        .filter_map(|rule| DeviceRule::parse(&rule.rule))
        .collect()
}

/// The rules of steps, with the devices that they are for.
pub(super) fn rules_of_steps(steps: &[InjectionStep]) -> impl Iterator<Item = Rule> {
    steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule, .. } => Some(Rule::of(*rule, step)),
        _ => None,
    })
}
