//! Reads and changes `DevicePolicy=` and `DeviceAllow=` of systemd units. Sends D-Bus calls to
//! systemd for this (org.freedesktop.systemd1(5)).

use super::connection::{CallResults, Connection};
use super::error::BusError;
use super::message::{MessageWriter, MethodCall};
use super::reply::MessageReader;
use super::unit::Unit;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// An entry of `DeviceAllow=`: the path of a device node or link, and the allowed access, such as
/// `("/dev/char/10:183", "rw")` (systemd.resource-control(5)).
pub(super) type DeviceAllowEntry = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DevicePolicy {
    /// The value of `DevicePolicy=`, which is `auto`, `closed` or `strict`.
    pub(super) policy: String,
    pub(super) allow_entries: Vec<DeviceAllowEntry>,
}

impl DevicePolicy {
    /// Reports whether the unit restricts devices. With `DevicePolicy=auto`, all devices are
    /// allowed as long as `DeviceAllow=` is empty. A first entry of `DeviceAllow=` denies all other
    /// devices.
    pub(super) fn restricts_devices(&self) -> bool {
        self.policy != "auto" || !self.allow_entries.is_empty()
    }
}

/// Reads the device policy of a unit, and the major version of systemd. The version is `None` if
/// systemd reports it in an unknown format.
pub(super) fn read_device_policy(
    connection: &mut Connection,
    unit: &Unit,
) -> Result<(DevicePolicy, Option<u32>), BusError> {
    let path = unit.object_path();
    let [policy, allow_entries, version] = connection.call([
        get_property_call(&path, unit.interface(), "DevicePolicy"),
        get_property_call(&path, unit.interface(), "DeviceAllow"),
        get_property_call(MANAGER_PATH, MANAGER, "Version"),
    ])?;
    let policy = read_variant(&policy, "s")?.read_string()?.to_owned();
    let allow_entries = read_variant(&allow_entries, "a(ss)")?.read_string_pairs()?;
    let version = parse_major_version(read_variant(&version, "s")?.read_string()?);
    Ok((
        DevicePolicy {
            policy,
            allow_entries,
        },
        version,
    ))
}

/// Adds `entries` to `DeviceAllow=` of a unit, and waits until systemd has applied the change. The
/// change lasts until the next boot. systemd replaces an existing entry for the same path.
pub(super) fn add_device_allow(
    connection: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllowEntry],
) -> Result<(), BusError> {
    let set_call = set_device_allow_call(unit, &[entries]);
    connection.call([set_call, ping_call()]).map(drop)
}

/// Replaces the entries of `DeviceAllow=` of a unit by `entries`. For this, the call assigns an
/// empty list first, which makes systemd remove the existing entries. A list that is not empty is
/// only added to them.
pub(super) fn set_device_allow(
    connection: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllowEntry],
) -> Result<(), BusError> {
    let set_call = set_device_allow_call(unit, &[&[], entries]);
    connection.call([set_call, ping_call()]).map(drop)
}

/// Returns a call of `Ping`. Its reply shows that systemd has applied the changes of the previous
/// calls. systemd replies to a change before it applies the change to the cgroup, but reads the
/// next message only after that.
fn ping_call() -> MethodCall<'static> {
    MethodCall {
        destination: SYSTEMD,
        path: MANAGER_PATH,
        interface: "org.freedesktop.DBus.Peer",
        member: "Ping",
        signature: "",
        body: MessageWriter::default(),
    }
}

fn get_property_call<'a>(path: &'a str, interface: &'a str, property: &'a str) -> MethodCall<'a> {
    let mut body = MessageWriter::default();
    body.write_string(interface);
    body.write_string(property);
    MethodCall {
        destination: SYSTEMD,
        path,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        signature: "ss",
        body,
    }
}

/// Returns the call of `SetUnitProperties` that assigns `lists` to `DeviceAllow=` of the unit, one
/// list after the other. The assignments last until the next boot.
fn set_device_allow_call<'a>(unit: &Unit, lists: &[&[DeviceAllowEntry]]) -> MethodCall<'a> {
    let mut body = MessageWriter::default();
    body.write_string(unit.name());
    let is_runtime_change = true;
    body.write_boolean(is_runtime_change);
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
    MethodCall {
        destination: SYSTEMD,
        path: MANAGER_PATH,
        interface: MANAGER,
        member: "SetUnitProperties",
        signature: "sba(sv)",
        body,
    }
}

/// Returns a reader for the property value in `results`, the results of a call of `Get`. D-Bus
/// returns a property as a variant: a type signature, and then a value of this type. Fails if the
/// type is not `signature`.
fn read_variant<'a>(
    results: &'a CallResults,
    signature: &str,
) -> Result<MessageReader<'a>, BusError> {
    let mut reader = MessageReader::new(&results.body);
    if results.signature != "v" || reader.read_signature()? != signature {
        return Err(BusError::InvalidMessage);
    }
    Ok(reader)
}

/// Returns the major version of systemd. `version_text` is the value of the property `Version`,
/// such as `252.38-1~deb12u1`, `v239` or `systemd 219`.
fn parse_major_version(version_text: &str) -> Option<u32> {
    let version_text = version_text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = version_text.find(|c: char| !c.is_ascii_digit());
    version_text[..end.unwrap_or(version_text.len())]
        .parse()
        .ok()
}
