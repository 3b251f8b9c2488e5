//! Rules for shared devices, and for preparing them.

use super::ClassRuleError;
use crate::class::{ClassSpec, MAX_PRE_START, Prepare, Sharing};

pub(super) fn check_sharing(sharing: &Sharing) -> Result<(), ClassRuleError> {
    if let (true, Some(by)) = (sharing.combine, &sharing.combine_by) {
        return Err(ClassRuleError::CombineTwice(by.to_string()));
    }
    match (sharing.replicas, &sharing.replicas_from) {
        (Some(_), Some(from)) => Err(ClassRuleError::ReplicasTwice(from.to_string())),
        (None, None) if sharing.shared_suffix => Err(ClassRuleError::NoReplicas("shared_suffix")),
        (None, None) if sharing.one_device => Err(ClassRuleError::NoReplicas("one_device")),
        (None, None) if sharing.max_per_container.is_some() => {
            Err(ClassRuleError::NoReplicas("max_per_container"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_pre_start(spec: &ClassSpec, prepare: &Prepare) -> Result<(), ClassRuleError> {
    if prepare.timeout.get() > MAX_PRE_START {
        return Err(ClassRuleError::PreStartTooLong(prepare.timeout.get()));
    }
    match spec.sharing {
        Some(_) => Err(ClassRuleError::PreStartShared),
        None => Ok(()),
    }
}
