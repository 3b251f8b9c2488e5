//! Devices that are one for containers, such as the chips of a card.

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;

use crate::parse;

fn class(sharing: &str) -> Result<DeviceClass, String> {
    let text = format!(
        "version = 1\nresource = 'x.com/card'\nrequest = {{ env = 'X' }}\n\
         [[discover]]\npath = '/sys/chip{{number:number}}'\n\
         attributes = [{{ name = 'serial', file = 'serial' }}]\n\
         [device]\nid = 'chip-{{number}}'\norder = '{{number}}'\n\
         nodes = ['/dev/chip{{number}}']\n\
         health = [{{ file = 'state', equals = 'OK' }}]\n\
         [sharing]\n{sharing}\n"
    );
    parse("x", &text)
}

/// Chips with their cards and states.
fn host(chips: &[(u32, &str, &str)]) -> RecordedHost {
    let mut host = String::new();
    for (number, serial, state) in chips {
        host += &format!(
            "char /dev/chip{number} 240:{number}\nfile /sys/chip{number}/serial\n| {serial}\n\
             file /sys/chip{number}/state\n| {state}\n"
        );
    }
    RecordedHost::parse(&host).unwrap()
}

#[test]
fn the_chips_of_a_card_are_one_device_which_is_as_healthy_as_its_last() {
    let class = class("combine_by = '{serial}'").unwrap();
    let chips = [
        (0, "B7", "OK"),
        (1, "A3", "OK"),
        (2, "B7", "OK"),
        (3, "A3", "hot"),
        (4, "A3", "OK"),
    ];
    let found = discover::find_devices(&class, &host(&chips));
    let cards = found.devices.iter().map(|card| {
        let nodes = card
            .nodes
            .iter()
            .map(|node| node.host_path.to_str().unwrap());
        let nodes: Vec<&str> = nodes.collect();
        let index = card.index.as_deref().unwrap();
        (
            card.id.as_str(),
            index,
            nodes.join(" "),
            card.health.is_healthy(),
        )
    });
    let wanted = [
        ("B7", "0", "/dev/chip0 /dev/chip2".to_owned(), true),
        (
            "A3",
            "1",
            "/dev/chip1 /dev/chip3 /dev/chip4".to_owned(),
            false,
        ),
    ];
    assert_eq!(cards.collect::<Vec<_>>(), wanted);
    // A chip's own name means its card.
    assert!(found.devices[1].aliases.contains(&"chip-4".to_owned()));
}

#[test]
fn all_devices_of_a_resource_are_one_without_those_that_are_unhealthy() {
    let class = class("combine = true").unwrap();
    let chips = [(0, "B7", "OK"), (1, "A3", "hot")];
    let found = discover::find_devices(&class, &host(&chips));
    assert_eq!(found.devices.len(), 1);
    let card = &found.devices[0];
    assert_eq!((card.id.as_str(), card.nodes.len()), ("card", 1));
    assert!(card.health.is_healthy());
    assert!(found.warnings[0].starts_with("chip-1 is left out of card: "));
    let error = self::class("combine = true\ncombine_by = '{serial}'").unwrap_err();
    assert!(
        error.contains("either `combine` or `combine_by`"),
        "{error}"
    );
    let error = self::class("combine_by = '{slot}'").unwrap_err();
    assert!(error.contains("`{slot}`"), "{error}");
}
