//! Classes whose devices containers follow: an id that changes is refused.

use crate::parse;

/// The number in a node's name, or on the bus, is another one when the device comes back.
#[test]
fn a_class_is_followed_only_if_its_ids_stay() {
    let name = "{ name = 'name', value = 'c{index}' },";
    let number = "{ name = 'number', file = 'devnum' },";
    let port = "{ name = 'port', link = 'device', default = 'c{index}' },";
    for (id, node, attributes, refused) in [
        ("chip-{serial}", "/dev/chip{index}", "", None),
        ("chip-{port}", "/dev/chip{index}", port, None),
        // It is in no node's name.
        ("chip-{index}", "/dev/chip-{serial}", "", None),
        ("chip-{index}", "/dev/chip{index}", "", Some("index")),
        ("{serial}-{index}", "/dev/{name}", name, Some("index")),
        ("{name}", "/dev/chip{index:03}", name, Some("index")),
        ("u-{number}", "/dev/bus/{number:03}", number, Some("number")),
    ] {
        let class = |follow: bool| {
            let text = format!(
                "version = 1\nfollow = {follow}\nresource = 'example.com/chip'\n\
                 request = {{ env = 'CHIPS' }}\n\
                 discover = [{{ path = '/sys/chips/chip{{index:number}}', attributes = \
                 [{attributes}{{ name = 'serial', file = 'serial' }}] }}]\n\
                 device = {{ id = '{id}', nodes = ['{node}'] }}\n"
            );
            parse("chips", &text)
        };
        assert!(class(false).is_ok(), "{id}");
        match (class(true), refused) {
            (Ok(_), None) => {}
            (Err(error), Some(name)) => {
                let words = format!("the id `{id}` may not have `{name}`, a number that changes");
                assert!(error.contains(&words), "{error}");
                assert!(
                    error.starts_with("chips.toml:6: "),
                    "with its line: {error}"
                );
            }
            (checked, _) => panic!("{id}: {checked:?}"),
        }
    }
}

#[test]
fn only_who_follows_is_told() {
    let class = |lines: &str| {
        let text = format!(
            "version = 1\n{lines}\nresource = 'example.com/chip'\nrequest = {{ env = 'CHIPS' }}\n\
             discover = [{{ count = 1 }}]\ndevice = {{ id = 'chip-{{index}}' }}\n"
        );
        parse("chips", &text).map(|class| class.spec.announces_devices)
    };
    assert_eq!(class("follow = true\nannounce = true"), Ok(true));
    assert_eq!(class("follow = true"), Ok(false));
    let error = class("announce = true").unwrap_err();
    assert!(
        error.starts_with("chips.toml:2: `announce = true` needs `follow"),
        "{error}"
    );
}
