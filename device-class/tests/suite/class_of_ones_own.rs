//! What the author of a class meets: trees that are joined, devices that are left out, and
//! advice.

use device_class::discover::{self, Health, Inventory};
use device_class::host::RecordedHost;

use crate::{parse, rows};

fn found(keys: &str, host: &str) -> Inventory {
    let text = format!(
        "version = 1\nresource = 'example.com/card'\nrequest = {{ env = 'CARDS' }}\n{keys}"
    );
    let class = parse("card", &text).unwrap();
    discover::find_devices(&class, &RecordedHost::parse(host).unwrap())
}

fn ids(inventory: &Inventory) -> Vec<&str> {
    let devices = inventory.devices.iter();
    devices.map(|device| device.id.as_str()).collect()
}

/// The first directory that fits has not what is below it.
#[test]
fn a_join_searches_each_directory_in_the_middle_of_a_path() {
    let class = "[[discover]]\npath = '/dev/card{index:number}'\n\
        attributes = [{ path = '/sys/bus/pci/devices/{bdf}/card/card{index}' }]\n\
        [device]\nid = '{bdf}'\nnodes = ['/dev/card{index}']\n";
    let host = "dir /sys/bus/pci/devices/0000:00:00.0\n\
        dir /sys/bus/pci/devices/0000:00:10.0/card/card0\n\
        dir /sys/bus/pci/devices/0000:00:11.0/card/card1\n\
        char /dev/card0 240:0\nchar /dev/card1 240:1\n";
    let found = found(class, host);
    assert_eq!(ids(&found), ["0000:00:10.0", "0000:00:11.0"]);
}

/// Some of one board, all of a directory, and none.
#[test]
fn paths_are_counted() {
    let class = "[[discover]]\npath = '/sys/card{index:number}'\n\
        attributes = [\n\
        { name = 'board', file = 'board' },\n\
        { name = 'mates', path = '/sys/card*/board', equals = '{board}', map = { 1 = 'alone' } },\n\
        { name = 'all', path = '/sys/card*' },\n\
        { name = 'ports', path = '/sys/card{index}/port{port:number}', map = { 2 = 'two' } },\n\
        ]\n[device]\nid = 'card{index}_{mates}_{all}_{ports}'\nindex = '{index}'\n";
    let host = "file /sys/card0/board\n| 7\nfile /sys/card1/board\n| 8\n\
        file /sys/card2/board\n| 7\ndir /sys/card2/port0\ndir /sys/card2/port1\n";
    let found = found(class, host);
    assert_eq!(
        ids(&found),
        ["card0_2_3_0", "card1_alone_3_0", "card2_2_3_two"]
    );
}

/// Conditions, and why a card does not fit.
const CONDITIONS: &str = "
value = '{vendor}', equals = '0x1BAD' | {vendor} is `0x1bad`, not `0x1BAD`
value = '{vendor}', one_of = ['0x1', '0x2'] | {vendor} is `0x1bad`, not `0x1` or `0x2`
value = '{vendor}', none_of = ['0x1bad'] | {vendor} is `0x1bad`
exists = '/dev/no{index}' | nothing matches /dev/no{index}
absent = '/dev/card*' | something matches /dev/card*
";

#[test]
fn what_require_refuses_is_named_with_its_value() {
    for [condition, reason] in rows(CONDITIONS) {
        let class = format!(
            "[[discover]]\npath = '/sys/card{{index:number}}'\n\
             attributes = [{{ name = 'vendor', file = 'vendor' }}]\n\
             require = [{{ {condition} }}]\n[device]\nid = 'card-{{index}}'\n"
        );
        let host = "file /sys/card0/vendor\n| 0x1bad\nfile /sys/card1/vendor\n| 0x1bad\n\
                    char /dev/card0 240:0\n";
        let refused = found(&class, host).refused_candidates;
        assert_eq!(refused.count, 2, "{condition}");
        let first = format!("/sys/card0: {reason}");
        assert_eq!(refused.descriptions.len(), 2, "{condition}");
        assert_eq!(refused.descriptions[0], first, "{condition}");
    }
}

#[test]
fn advice_names_the_device() {
    let class = "[[discover]]\npath = '/sys/card{index:number}'\n\
        attributes = [{ name = 'serial', file = 'serial', advice = 'write card {index}' }]\n\
        [device]\nid = 'card-{serial}'\n\
        nodes = [{ path = '/dev/card{index}', advice = 'make card {index} of {serial}' }]\n\
        health = [{ file = 'state', equals = 'up', advice = 'run: awk {print} card{index}' }]\n";
    let host = "file /sys/card0/serial\n| a\nfile /sys/card0/state\n| down\n\
        file /sys/card1/serial\n| b\nfile /sys/card1/state\n| up\n\
        char /dev/card0 240:0\ndir /sys/card2\n";
    let found = found(class, host);
    let reason = |at: usize| match &found.devices[at].health {
        Health::Unhealthy { reason } => reason.as_str(),
        Health::Healthy => "none",
    };
    assert!(
        reason(0).ends_with("; run: awk {print} card0"),
        "{}",
        reason(0)
    );
    assert!(reason(1).ends_with("; make card 1 of b"), "{}", reason(1));
    let left_out = &found.warnings[0];
    assert!(left_out.ends_with("; write card 2"), "{left_out}");
}
