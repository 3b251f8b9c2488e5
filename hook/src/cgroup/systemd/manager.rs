//! Reads and changes `DevicePolicy=` and `DeviceAllow=` of units by D-Bus calls to systemd
//! (org.freedesktop.systemd1(5)).

use super::connection::{CallResults, Connection};
use super::error::BusError;
use super::message::{Call, Writer};
use super::reply::Reader;
use super::unit::Unit;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// One entry of `DeviceAllow=`: the path of a device node or link, and the letters of `rwm` that
/// are allowed (systemd.resource-control(5)).
pub(super) type DeviceAllow = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DevicePolicy {
    /// The value of `DevicePolicy=`, which is `auto`, `closed` or `strict`.
    pub(super) policy: String,
    pub(super) allowed: Vec<DeviceAllow>,
}

impl DevicePolicy {
    /// Returns whether the unit restricts devices. With `DevicePolicy=auto`, all devices are
    /// allowed as long as `DeviceAllow=` is empty; the first entry denies all other devices.
    pub(super) fn restricts_devices(&self) -> bool {
        self.policy != "auto" || !self.allowed.is_empty()
    }
}

/// Reads the device policy of a unit and the major version of systemd. The version is `None` if
/// systemd reports it in an unknown form.
pub(super) fn read_device_policy(
    bus: &mut Connection,
    unit: &Unit,
) -> Result<(DevicePolicy, Option<u32>), BusError> {
    let path = unit.object_path();
    let [policy, allowed, version] = bus.call([
        get_property(&path, unit.interface(), "DevicePolicy"),
        get_property(&path, unit.interface(), "DeviceAllow"),
        get_property(MANAGER_PATH, MANAGER, "Version"),
    ])?;
    let policy = read_variant(&policy, "s")?.read_string()?.to_owned();
    let allowed = read_variant(&allowed, "a(ss)")?.read_pairs()?;
    let version = parse_major_version(read_variant(&version, "s")?.read_string()?);
    Ok((DevicePolicy { policy, allowed }, version))
}

/// Adds `entries` to `DeviceAllow=` of a unit until the next boot, and waits until systemd has
/// applied the change. A new entry replaces an existing entry for the same path.
pub(super) fn add_device_allow(
    bus: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllow],
) -> Result<(), BusError> {
    let set_call = set_unit_properties(unit, &[entries]);
    bus.call([set_call, ping_call()]).map(drop)
}

/// Replaces `DeviceAllow=` of a unit by `entries` in one call. The call assigns an empty list
/// first, because systemd adds any other list to the existing entries.
pub(super) fn set_device_allow(
    bus: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllow],
) -> Result<(), BusError> {
    let set_call = set_unit_properties(unit, &[&[], entries]);
    bus.call([set_call, ping_call()]).map(drop)
}

/// Returns a call without effect, whose reply shows that earlier changes were applied. systemd
/// replies to a change before it applies the change to the cgroup, but applies the change before
/// it reads the next message.
fn ping_call() -> Call<'static> {
    Call {
        destination: SYSTEMD,
        path: MANAGER_PATH,
        interface: "org.freedesktop.DBus.Peer",
        member: "Ping",
        signature: "",
        body: Writer::default(),
    }
}

fn get_property<'a>(path: &'a str, interface: &'a str, property: &'a str) -> Call<'a> {
    let mut body = Writer::default();
    body.write_string(interface);
    body.write_string(property);
    Call {
        destination: SYSTEMD,
        path,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        signature: "ss",
        body,
    }
}

/// Returns a call that assigns each of `lists` to `DeviceAllow=` of the unit, in their order.
fn set_unit_properties<'a>(unit: &Unit, lists: &[&[DeviceAllow]]) -> Call<'a> {
    let mut body = Writer::default();
    body.write_string(unit.name());
    let runtime = true;
    body.write_boolean(runtime);
    body.write_struct_array(|properties| {
        for entries in lists {
            properties.begin_struct();
            properties.write_string("DeviceAllow");
            properties.write_signature("a(ss)");
            properties.write_struct_array(|list| {
                for (path, letters) in *entries {
                    list.begin_struct();
                    list.write_string(path);
                    list.write_string(letters);
                }
            });
        }
    });
    Call {
        destination: SYSTEMD,
        path: MANAGER_PATH,
        interface: MANAGER,
        member: "SetUnitProperties",
        signature: "sba(sv)",
        body,
    }
}

/// Returns a reader of the property value in `results`. D-Bus returns a property as a variant,
/// which is the signature of a type, followed by a value of the type. Another signature than
/// `signature` is an error.
fn read_variant<'a>(results: &'a CallResults, signature: &str) -> Result<Reader<'a>, BusError> {
    let mut reader = Reader::new(&results.body);
    if results.signature != "v" || reader.read_signature()? != signature {
        return Err(BusError::InvalidMessage);
    }
    Ok(reader)
}

/// Returns the major version of systemd from the property `Version`, which has forms such as
/// `252.38-1~deb12u1`, `v239` and `systemd 219`.
fn parse_major_version(text: &str) -> Option<u32> {
    let text = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}
