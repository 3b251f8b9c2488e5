//! Tests of the names of devices in requests: the devices that a text means on a host, and the
//! names that are printed.

use device_class::DeviceClass;
use device_class::discover::{self, Device, Inventory};
use device_class::host::RecordedHost;
use device_class::name::DeviceId;
use injection_plan::request::{Environment, Request, RequestNames};
use proptest::prelude::*;

use crate::planning::{asker, directory, parse, plan, recordings, shipped, with_causes};

/// Sticks that have the names of their sockets, and whatever their makers wrote into them.
const STICKS: &str = "version = 1\nresource = 'example.com/stick'\n\
    request = { env = 'STICKS' }\n\
    [[discover]]\npath = '/sys/sticks/{port}'\n\
    attributes = [{ name = 'serial', file = 'serial' }]\n\
    [device]\nid = 'usb-{port}'\norder = '{port}'\naliases = ['{port}', '{serial}']\n";

const STICKS_HOST: &str = "file /sys/sticks/1-1/serial\n| 2\n\
    file /sys/sticks/1-2/serial\n| HD Pro Webcam C920\n\
    file /sys/sticks/1-3/serial\n| all\n\
    file /sys/sticks/2-1/serial\n| a, \"b\"\n";

pub(crate) fn request(class: &DeviceClass, value: &str) -> Result<Option<Request>, String> {
    let env = Environment::from(vec![format!("{}={value}", class.spec.request.env)]);
    Request::find(class, &env, |_| None).map_err(with_causes)
}

/// Returns the ids of the devices that a container gets by a request, or the error.
pub(crate) fn chosen(
    class: &DeviceClass,
    host: &RecordedHost,
    value: &str,
) -> Result<String, String> {
    let request = request(class, value)?.ok_or("nothing")?;
    let plan = plan(class, &request, host, &asker())?;
    let devices = plan.grants[0].devices.iter();
    Ok(devices.map(DeviceId::as_str).collect::<Vec<_>>().join(" "))
}

/// Returns the ids of the devices that a request means in an inventory, or `None` if the
/// request is refused.
fn chosen_of(class: &DeviceClass, inventory: &Inventory, value: &str) -> Option<Vec<String>> {
    let request = request(class, value).ok()??;
    let chosen = request.selection.choose_devices(class, inventory).ok()?;
    Some(chosen.iter().map(|device| device.id.to_string()).collect())
}

#[test]
fn a_name_counts_before_a_range_and_an_index() {
    let class = parse("stick", STICKS).unwrap();
    let host = RecordedHost::parse(STICKS_HOST).unwrap();
    for (value, devices) in [
        // The second stick is in socket 1-2, and a range would be the second and the third.
        ("1-2", "usb-1-2"),
        ("1-3", "usb-1-3"),
        ("2-1", "usb-2-1"),
        ("example.com/stick=1-2", "usb-1-2"),
        ("1-2,0", "usb-1-1 usb-1-2"),
        // The third stick has this text as its index, and the first one as its serial number.
        ("2", "usb-1-1"),
        ("3", "usb-2-1"),
        // Nobody is called so. The numbers of a range are indices.
        ("0-1", "usb-1-1 usb-1-2"),
        ("0-2", "usb-1-1 usb-1-2 usb-1-3"),
        ("HD Pro Webcam C920", "usb-1-2"),
        ("hd pro webcam c920 , 0", "usb-1-1 usb-1-2"),
        ("\"HD Pro Webcam C920\"", "usb-1-2"),
        ("\"a, \"\"b\"\"\",0", "usb-1-1 usb-2-1"),
        ("\"1-2\"", "usb-1-2"),
        ("all", "usb-1-1 usb-1-2 usb-1-3 usb-2-1"),
    ] {
        let found = chosen(&class, &host, value);
        assert_eq!(found.as_deref(), Ok(devices), "{value}");
    }
    for (value, reason) in [
        ("a, \"b\"", "no device `a`"),
        ("\"0-1\"", "no device `0-1`"),
        ("\"all\"", "no device `all`"),
        ("\"none\"", "no device `none`"),
        ("\"example.com/stick=0\"", "no device `example.com/stick=0`"),
        ("\"1-2", "begins with a quote that does not end it"),
        ("\"1-2\"3", "begins with a quote that does not end it"),
        ("\"\"", "`` is neither a device nor a range"),
        // No stick is at these USB ports, and the devices 1 to 9 are others.
        ("1-9", "no device `1-9`"),
        ("3-1", "no device `3-1`"),
        ("\"1-9\"", "no device `1-9` on this host; there are 4"),
        ("0-9", "no device `4`"),
        (
            "example.org/stick=1-2",
            "which is not a resource of the class",
        ),
    ] {
        let refused = chosen(&class, &host, value).unwrap_err();
        assert!(refused.contains(reason), "{value}: {refused}");
    }
}

/// The names are those that `boathook list` prints.
#[test]
fn a_name_is_written_so_that_it_means_its_device() {
    let class = parse("stick", STICKS).unwrap();
    let host = RecordedHost::parse(STICKS_HOST).unwrap();
    let inventory = discover::find_devices(&class, &host);
    let names = RequestNames::new(&class, &inventory);
    let written = |device: usize, name: &str| {
        let written = names.format_name(&inventory.devices[device], name)?;
        Some((written.text, written.is_unique))
    };
    let own = |text: &str| Some((text.to_owned(), true));
    for (device, name, expected) in [
        (0, "1-1", own("\"1-1\"")),
        (0, "2", own("2")),
        (0, "0", own("0")),
        (1, "HD Pro Webcam C920", own("HD Pro Webcam C920")),
        (2, "2", None),
        (2, "all", None),
        (2, "NONE", None),
        (2, "", None),
        (2, "0-1", None),
        (2, "/dev/stick", None),
        (2, "example.com/stick=2", None),
        (3, "a, \"b\"", own("\"a, \"\"b\"\"\"")),
    ] {
        assert_eq!(written(device, name), expected, "{name}");
    }
    let aliases = inventory.devices.iter().flat_map(|it| &it.aliases);
    let is_word = |name: &&String| ["all", "none", "void"].contains(&name.as_str());
    assert_eq!(aliases.filter(is_word).count(), 0);
}

/// Fails unless each name that is printed means its device, and no other if that is said.
fn assert_written_names_mean_their_devices(class: &DeviceClass, inventory: &Inventory) -> usize {
    let names = RequestNames::new(class, inventory);
    let mut count = 0;
    for device in &inventory.devices {
        let own = [device.id.as_str()]
            .into_iter()
            .chain(device.index.as_deref());
        for name in own.chain(device.aliases.iter().map(String::as_str)) {
            let Some(written) = names.format_name(device, name) else {
                continue;
            };
            let case = format!("{}: {name:?} of {}", class.name, device.id);
            let meant = chosen_of(class, inventory, &written.text).unwrap_or_default();
            assert!(meant.contains(&device.id.to_string()), "{case}: {meant:?}");
            assert_eq!(meant.len() == 1, written.is_unique, "{case}: {meant:?}");
            count += 1;
        }
    }
    count
}

#[test]
fn every_printed_name_of_a_recorded_host_means_its_device() {
    let mut count = 0;
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let inventory = discover::find_devices(&class, &host);
            let names = RequestNames::new(&class, &inventory);
            for device in &inventory.devices {
                let id = names.format_name(device, device.id.as_str());
                assert!(id.is_some_and(|id| id.is_unique), "{}", device.id);
            }
            count += assert_written_names_mean_their_devices(&class, &inventory);
        }
    }
    assert!(count > 500, "{count} names");
}

/// Texts that have another meaning in a request, or some of its marks.
fn hostile_text() -> impl Strategy<Value = String> {
    let whole = prop::sample::select(vec![
        "all",
        "None",
        "void",
        "0",
        "1",
        "2",
        "0-1",
        "1-0",
        "0-2",
        "1-",
        "-",
        "usb-0",
        "USB-0",
        "usb-1",
        "usb-1::0",
        "/dev/ttyUSB0",
        "/dev/x:/dev/y",
        "example.com/a=0",
        "example.com/b=all",
        "example.com/a=none",
        "=",
        "a=b",
        "\"",
        "\"\"",
        "\"0\"",
        " 0",
        "0,1",
        "a,b",
        "\"a,b\"",
        "all,x",
        " ",
        "é",
    ]);
    let mixed = prop::collection::vec(
        prop::sample::select("01-,\" =/:.aA\t".chars().collect::<Vec<_>>()),
        1..6,
    );
    prop_oneof![
        whole.prop_map(str::to_owned),
        mixed.prop_map(|characters| characters.into_iter().collect()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Hardware whose makers chose its texts.
    #[test]
    fn every_printed_name_of_hostile_hardware_means_its_device(
        texts in prop::collection::vec((hostile_text(), hostile_text(), prop::option::of(hostile_text())), 1..5),
        replicas in prop::option::of(1_u16..3),
        several_resources: bool,
    ) {
        let resource = if several_resources { "example.com/{kind}" } else { "example.com/a" };
        let class = format!(
            "version = 1\nresource = '{resource}'\nrequest = {{ env = 'STICKS' }}\n\
             [[discover]]\ncount = 1\nattributes = [{{ name = 'kind', value = 'a' }}]\n\
             [device]\nid = 'usb-{{index}}'\n"
        );
        let class = parse("stick", &class).unwrap();
        let first = discover::find_devices(&class, &RecordedHost::parse("").unwrap()).devices.remove(0);
        let devices = texts.into_iter().enumerate().map(|(number, (alias, other, index))| Device {
            id: format!("usb-{number}").try_into().unwrap(),
            aliases: vec![alias, other],
            index: index.or_else(|| Some(number.to_string())),
            replicas,
            ..first.clone()
        });
        let inventory = Inventory { devices: devices.collect(), ..Inventory::default() };
        assert_written_names_mean_their_devices(&class, &inventory);
        // A text that some device has as a name, and that is nothing else, means only devices
        // that have it.
        for alias in inventory.devices.iter().flat_map(|device| &device.aliases) {
            let quoted = format!("\"{}\"", alias.replace('"', "\"\""));
            if alias.starts_with("/dev/") {
                continue;
            }
            let has_it = |id: &String| {
                let device = inventory.devices.iter().find(|device| device.id.as_str() == id);
                device.is_some_and(|device| {
                    let names = device.aliases.iter().map(String::as_str);
                    let mut names = names.chain([device.id.as_str()]);
                    names.any(|name| name.eq_ignore_ascii_case(alias))
                })
            };
            for value in [alias, &quoted] {
                let is_other = value == alias
                    && (alias.contains([',', '=', '"']) || alias.trim() != alias || is_word(alias));
                if is_other {
                    continue;
                }
                let meant = chosen_of(&class, &inventory, value).unwrap_or_default();
                prop_assert!(meant.iter().all(has_it), "{value:?}: {meant:?}");
                prop_assert!(!meant.is_empty(), "{value:?}");
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    ["all", "none", "void"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
}
