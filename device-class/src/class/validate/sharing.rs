//! Checks the rules for shared devices.

use crate::class::Sharing;
use crate::strict_toml::BrokenRule;

pub(super) fn check_sharing(sharing: &Sharing) -> Result<(), BrokenRule> {
    if let (true, Some(combine_by)) = (sharing.combine, &sharing.combine_by) {
        let message = "[sharing] has either `combine` or `combine_by`, not both";
        return Err(BrokenRule::new(&*combine_by.to_string(), message));
    }
    match (sharing.replicas, &sharing.replicas_from) {
        (Some(_), Some(replicas_from)) => Err(BrokenRule::new(
            &*replicas_from.to_string(),
            "[sharing] has either `replicas` or `replicas_from`, not both",
        )),
        (None, None) if sharing.one_device => Err(BrokenRule::new(
            "one_device",
            "[sharing] has `one_device`, but neither `replicas` nor `replicas_from`",
        )),
        _ => Ok(()),
    }
}
