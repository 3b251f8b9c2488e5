//! Checks the rules for `[sharing]`, whose keys partly exclude each other.

use crate::class::Sharing;
use crate::strict_toml::BrokenRule;

pub(super) fn check_sharing(sharing: &Sharing) -> Result<(), BrokenRule> {
    if let (true, Some(combination_key)) = (sharing.combines_resource, &sharing.combination_key) {
        let message = "[sharing] has either `combine` or `combine_by`, not both";
        return Err(BrokenRule::new(&*combination_key.to_string(), message));
    }
    match (sharing.replicas, &sharing.replica_count_template) {
        (Some(_), Some(replica_count_template)) => Err(BrokenRule::new(
            &*replica_count_template.to_string(),
            "[sharing] has either `replicas` or `replicas_from`, not both",
        )),
        (None, None) if sharing.requires_one_device => Err(BrokenRule::new(
            "one_device",
            "[sharing] has `one_device`, but neither `replicas` nor `replicas_from`",
        )),
        _ => Ok(()),
    }
}
