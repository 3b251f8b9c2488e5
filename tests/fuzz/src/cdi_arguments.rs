//! The arguments of a hook that a CDI specification added.

use std::collections::BTreeSet;

use device_class::name::DeviceId;
use hook::oci::CdiGrant;
use injection_plan::request::{Environment, Request, RequestSource};

use super::classes::find_class;

/// The input is the value of the option `--cdi`. It names one device, or is refused, or
/// consists of several names or a word for several.
pub(crate) fn grant(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let Ok(grant) = CdiGrant::parse(text) else {
        return;
    };
    let claim = grant.claim_uid.iter().map(|claim| format!("@{claim}"));
    let again = format!(
        "{}={}{}",
        grant.class,
        grant.devices,
        claim.collect::<String>()
    );
    assert_eq!(again, text);
    let (class, inventory) = find_class(grant.class.as_str());
    let devices = grant.devices.clone();
    let source = RequestSource::Cdi { devices };
    let Ok(Some(request)) = Request::parse(class, &Environment::default(), source) else {
        return;
    };
    let Ok(chosen) = request.selection.choose_devices(class, inventory) else {
        return;
    };
    // What has the characters of an id, and is what a device could be called.
    let could_be_id = DeviceId::from_hardware(grant.devices.as_str());
    if could_be_id.is_ok_and(|id| id.as_str() == grant.devices.as_str()) {
        let ids: BTreeSet<&str> = chosen.iter().map(|one| one.id.as_str()).collect();
        assert!(ids.len() < 2, "{} is {ids:?}", grant.devices);
    }
}
