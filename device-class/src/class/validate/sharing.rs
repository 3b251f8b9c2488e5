//! Checks the rules for `[sharing]`, whose keys partly exclude each other.

use crate::class::Sharing;
use crate::strict_toml::RuleViolation;

pub(super) fn check_sharing(sharing: &Sharing) -> Result<(), RuleViolation> {
    if let (true, Some(combination_key)) = (sharing.combines_resource, &sharing.combination_key) {
        let message = "[sharing] has either `combine` or `combine_by`, not both";
        return Err(RuleViolation::new(&*combination_key.to_string(), message));
    }
    match (sharing.replicas, &sharing.replica_count_template) {
        (Some(_), Some(replica_count_template)) => Err(RuleViolation::new(
            &*replica_count_template.to_string(),
            "[sharing] has either `replicas` or `replicas_from`, not both",
        )),
        (None, None) if sharing.requires_one_device => Err(RuleViolation::new(
            "one_device",
            "[sharing] has `one_device`, but neither `replicas` nor `replicas_from`",
        )),
        _ => Ok(()),
    }
}
