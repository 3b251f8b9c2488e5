//! Rules for shared devices.

use super::ClassRuleError;
use crate::class::Sharing;

pub(super) fn check_sharing(sharing: &Sharing) -> Result<(), ClassRuleError> {
    if let (true, Some(by)) = (sharing.combine, &sharing.combine_by) {
        return Err(ClassRuleError::CombineTwice(by.to_string()));
    }
    match (sharing.replicas, &sharing.replicas_from) {
        (Some(_), Some(from)) => Err(ClassRuleError::ReplicasTwice(from.to_string())),
        (None, None) if sharing.one_device => Err(ClassRuleError::NoReplicas("one_device")),
        _ => Ok(()),
    }
}
