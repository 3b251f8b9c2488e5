//! The calls to systemd (org.freedesktop.systemd1(5)).

use super::connection::{Connection, Results};
use super::error::BusError;
use super::message::{Call, Writer};
use super::reply::Reader;
use super::unit::Unit;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// One entry of `DeviceAllow=`: a node's path and letters of `rwm`.
pub(super) type DeviceAllow = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DevicePolicy {
    /// `auto`, `closed` or `strict`.
    pub(super) policy: String,
    pub(super) allowed: Vec<DeviceAllow>,
}

impl DevicePolicy {
    /// With `auto`, everything is allowed as long as nothing is listed. The
    /// first entry of a list would forbid all the rest.
    pub(super) fn restricts(&self) -> bool {
        self.policy != "auto" || !self.allowed.is_empty()
    }
}

/// Reads a unit's device rules, and the major version of systemd.
pub(super) fn device_policy(
    bus: &mut Connection,
    unit: &Unit,
) -> Result<(DevicePolicy, Option<u32>), BusError> {
    let path = unit.object_path();
    let [policy, allowed, version] = bus.call([
        get(&path, unit.interface(), "DevicePolicy"),
        get(&path, unit.interface(), "DeviceAllow"),
        get(MANAGER_PATH, MANAGER, "Version"),
    ])?;
    let policy = variant(&policy, "s")?.string()?.to_owned();
    let allowed = variant(&allowed, "a(ss)")?.pairs()?;
    let version = version_number(variant(&version, "s")?.string()?);
    Ok((DevicePolicy { policy, allowed }, version))
}

/// Adds entries to a unit's `DeviceAllow=`, until the next boot, and waits
/// until systemd has applied them. An entry replaces an earlier one for the
/// same path.
pub(super) fn add_device_allow(
    bus: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllow],
) -> Result<(), BusError> {
    let set = set_unit_properties(unit, &[entries]);
    bus.call([set, ping()]).map(drop)
}

/// Replaces a unit's `DeviceAllow=` in one step, as [`add_device_allow`] adds to it: an empty
/// list clears it.
pub(super) fn set_device_allow(
    bus: &mut Connection,
    unit: &Unit,
    entries: &[DeviceAllow],
) -> Result<(), BusError> {
    let set = set_unit_properties(unit, &[&[], entries]);
    bus.call([set, ping()]).map(drop)
}

/// systemd replies before it applies the rules, but applies them before it reads the next
/// message: this one.
fn ping() -> Call<'static> {
    Call {
        destination: SYSTEMD,
        path: MANAGER_PATH,
        interface: "org.freedesktop.DBus.Peer",
        member: "Ping",
        signature: "",
        body: Writer::default(),
    }
}

fn get<'a>(path: &'a str, interface: &'a str, property: &'a str) -> Call<'a> {
    let mut body = Writer::default();
    body.string(interface);
    body.string(property);
    Call {
        destination: SYSTEMD,
        path,
        interface: "org.freedesktop.DBus.Properties",
        member: "Get",
        signature: "ss",
        body,
    }
}

/// Assigns `DeviceAllow=` each of the lists, one after the other.
fn set_unit_properties<'a>(unit: &Unit, lists: &[&[DeviceAllow]]) -> Call<'a> {
    let mut body = Writer::default();
    body.string(unit.name());
    let runtime = true;
    body.boolean(runtime);
    body.array_of_structs(|properties| {
        for entries in lists {
            properties.begin_struct();
            properties.string("DeviceAllow");
            properties.signature("a(ss)");
            properties.array_of_structs(|list| {
                for (path, letters) in *entries {
                    list.begin_struct();
                    list.string(path);
                    list.string(letters);
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

/// A property is given as a variant: its type, then its value.
fn variant<'a>(results: &'a Results, signature: &str) -> Result<Reader<'a>, BusError> {
    let mut reader = Reader::new(&results.body);
    if results.signature != "v" || reader.signature()? != signature {
        return Err(BusError::Garbage);
    }
    Ok(reader)
}

/// `252.38-1~deb12u1`, `v239` and `systemd 219` have all been seen.
fn version_number(text: &str) -> Option<u32> {
    let text = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = text.find(|c: char| !c.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}
