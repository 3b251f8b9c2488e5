//! Parts that are made: what a class may say, and what a host has of it.

use device_class::discover::{self, Divisible};
use device_class::host::RecordedHost;

use crate::parse;

const DISKS: &str = r#"version = 1
resource = "x.com/disk"
request = { env = "DISKS" }
counters = { speed = "{speed}" }
[[discover]]
path = "/sys/disks/{disk}"
attributes = [{ name = "id", value = "{disk}" }, { name = "speed", file = "speed" }]
[[discover]]
additional = true
path = "/sys/disks/{disk}/p{number:number}"
part_of = "{disk}"
attributes = [{ name = "id", value = "{disk}p{number}" }]
[device]
id = "{id}"
[[parts]]
profile = "half"
placements = [0, 4]
slots = 4
takes = { speed = 3 }
attributes = [{ name = "number", formula = "{placement} + 1" }]
found = { value = "{number}", equals = "{number}" }
make = [["/bin/mk", "{disk}", "{number}"], ["/bin/settle"]]
remove = [["/bin/rm", "{disk}", "{number}", "{profile}"]]
[[parts]]
profile = "fast"
require = [{ value = "{speed}", one_of = ["9"] }]
placements = [7]
found = { value = "{number}", equals = "{placement}" }
make = [["/bin/mk"]]
remove = [["/bin/rm"]]
timeout = 5
"#;

#[test]
fn a_mistake_is_named_with_its_line() {
    let error = |text: &str| parse("disk", text).err().unwrap_or("none".to_owned());
    assert_eq!(error(DISKS), "none");
    for (right, wrong, expected) in [
        (
            "\"half\"",
            "\"Half\"",
            "the profile `Half` is not of 1 to 32 of a-z 0-9 . + -",
        ),
        ("\"half\"", "\"\"", "the profile `` is not"),
        (
            "\"fast\"",
            "\"half\"",
            "disk.toml:25: the profile `half` has the name of another one",
        ),
        ("[0, 4]", "[]", "`placements` names no place"),
        ("[0, 4]", "[0, 0]", "`placements` names a place twice"),
        (
            "[0, 4]",
            "[0, 29]",
            "a part ends at the slot 33; a device has at most 32",
        ),
        ("[0, 4]", "[-1]", "-1"),
        (
            "[0, 4]",
            "[28]",
            "disk.toml:4: a device has at most 32 slots and counters together",
        ),
        (
            "slots = 4",
            "slots = 0",
            "a part takes at least one of the `slots`",
        ),
        (
            "slots = 4",
            "slot = 4",
            "unknown key `slot`, did you mean `slots`?",
        ),
        (
            "speed = 3",
            "sped = 3",
            "`takes` names `sped`, which is not in [counters]",
        ),
        ("speed = 3", "speed = -3", "-3"),
        (
            "{ speed = \"{speed}\" }",
            "{ Speed = \"7\" }",
            "the counter `Speed` is not a name",
        ),
        (
            "{ speed = \"{speed}\" }",
            "{ slot-1 = \"7\" }",
            "or begins with `slot-`",
        ),
        (
            "{ speed = \"{speed}\" }",
            "{ speed = \"{sped}\" }",
            "uses the attribute `sped`",
        ),
        (
            "\"/bin/mk\", \"{disk}\"",
            "\"mk\", \"{disk}\"",
            "`make` is a list of programs",
        ),
        (
            "\"/bin/mk\", \"{disk}\"",
            "\"/bin/{disk}\", \"\"",
            "`make` is a list of programs",
        ),
        ("[[\"/bin/rm\"]]", "[]", "`remove` is a list of programs"),
        (
            "timeout = 5",
            "timeout = 0",
            "0 seconds is not between 1 and 100",
        ),
        (
            "{profile}",
            "{profil}",
            "`{profil}` uses the attribute `profil`; known attributes are",
        ),
        (
            "value = \"{number}\", equals = \"{placement}\"",
            "value = \"{speed}\", equals = \"1\"",
            "uses the attribute `speed`",
        ),
        (
            "part_of = \"{disk}\"\n",
            "",
            "no [[discover]] with `part_of` finds them",
        ),
        (
            "[device]\n",
            "[sharing]\nreplicas = 2\n[device]\n",
            "a class has either [sharing] or [[parts]]",
        ),
    ] {
        let text = DISKS.replacen(right, wrong, 1);
        assert_ne!(text, DISKS, "{right}");
        let error = error(&text);
        assert!(error.contains(expected), "{right} -> {wrong}: {error}");
        assert!(error.starts_with("disk.toml:"), "{error}");
    }
    let (alone, _) = DISKS.split_once("[[parts]]").unwrap();
    assert!(
        error(alone).contains("[counters] belongs to [[parts]]"),
        "{}",
        error(alone)
    );
}

fn divisible(files: &[(&str, &str)]) -> (Vec<Divisible>, Vec<String>) {
    let class = parse("disk", DISKS).unwrap();
    let mut host = RecordedHost::default();
    for (path, text) in files {
        host.add_file(path, *text);
    }
    let inventory = discover::devices(&class, &host);
    discover::divisible(&class, &inventory, &host)
}

const SPEED: (&str, &str) = ("/sys/disks/a/speed", "7\n");

#[test]
fn a_device_and_its_parts_are_the_same_whichever_are_made() {
    let (none, warnings) = divisible(&[SPEED, ("/sys/disks/b/speed", "9\n")]);
    assert_eq!(warnings, [""; 0]);
    let [a, b] = &none[..] else {
        panic!("{none:?}")
    };
    assert_eq!(a.whole.id.as_str(), "a");
    // Slots that no part of this device can have do no harm.
    let counters: Vec<_> = a
        .counters
        .iter()
        .map(|(name, n)| (name.as_str(), *n))
        .collect();
    let slots = (0..8).map(|slot| format!("slot-{slot}"));
    let slots: Vec<String> = slots.collect();
    let slots = slots.iter().map(|slot| (slot.as_str(), 1));
    assert_eq!(counters, slots.chain([("speed", 7)]).collect::<Vec<_>>());
    let named = |one: &Divisible| -> Vec<(String, u16, Option<String>)> {
        let parts = one.parts.iter();
        let made = |id: &device_class::name::DeviceId| id.as_str().to_owned();
        parts
            .map(|part| {
                (
                    part.profile.clone(),
                    part.placement(),
                    part.made.as_ref().map(made),
                )
            })
            .collect()
    };
    let half =
        |placement, made: Option<&str>| ("half".to_owned(), placement, made.map(str::to_owned));
    assert_eq!(named(a), [half(0, None), half(4, None)]);
    assert_eq!(named(b)[2], ("fast".to_owned(), 7, None));
    let part = &a.parts[1];
    assert_eq!(part.make, [vec!["/bin/mk", "a", "5"], vec!["/bin/settle"]]);
    assert_eq!(part.remove, [["/bin/rm", "a", "5", "half"]]);
    let takes: Vec<_> = part.takes.keys().map(String::as_str).collect();
    assert_eq!(takes, ["slot-4", "slot-5", "slot-6", "slot-7", "speed"]);
    let (divided, warnings) = divisible(&[SPEED, ("/sys/disks/a/p5/x", "")]);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(named(&divided[0]), [half(0, None), half(4, Some("ap5"))]);
    assert_eq!(divided[0].counters, a.counters);
}

#[test]
fn what_cannot_be_divided_says_why() {
    for (files, wanted) in [
        (
            &[SPEED, ("/sys/disks/a/p3/x", "")][..],
            "a: is not divided: its part ap3 is none of a profile in [[parts]]: remove it, or describe it in the class",
        ),
        (
            &[("/sys/disks/a/speed", "fast\n")],
            "a: is not divided: the counter speed is `fast`, which is not a number",
        ),
    ] {
        let (found, warnings) = divisible(files);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(warnings, [wanted]);
    }
}
