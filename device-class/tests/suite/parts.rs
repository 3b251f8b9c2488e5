//! Parts that are made: what a class may say, and what a host has of it.

mod shipped;

use device_class::discover::{self, DeviceDivision, PartAction, PossiblePart};
use device_class::host::RecordedHost;

use crate::{parse, rows};

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
placements = "0, 4"
slots = "4"
takes = { speed = "3" }
attributes = [{ name = "number", formula = "{placement} + 1" }]
found = { value = "{number}", equals = "{number}" }
make = [["/bin/mk", "{disk}", "{number}"], ["/bin/settle"]]
remove = [["/bin/rm", "{disk}", "{number}", "{profile}"]]
[[parts]]
profile = "fast"
require = [{ value = "{speed}", one_of = ["9"] }]
placements = "7"
found = { value = "{number}", equals = "{placement}" }
make = [["/bin/mk"]]
remove = [["/bin/rm"]]
timeout = 5
"#;

/// What is replaced in [`DISKS`], by what, and what is said of it.
const MISTAKES: &str = r#"
"half" | "Half" | the profile `Half` is not of 1 to 32 of a-z 0-9 . + - _
"half" | "" | the profile `` is not
"fast" | "half" | disk.toml:25: the profile `half` has the name of another one
0, 4 |  | `placements`: `` is not a number
0, 4 | 0, 0 | `placements` names a place twice
0, 4 | 0, 29 | a part ends at the slot 33; a device has at most 32
0, 4 | -1 | `placements`: `` is not a number
0, 4 | 4-0 | `placements`: `4-0` names no place
0, 4 | 0-99 | a part ends at the slot 33
0, 4 | 0, {plac} | uses the attribute `plac`
slots = "4" | slots = "0" | a part takes at least one of the `slots`
slots = "4" | slot = "4" | unknown key `slot`, did you mean `slots`?
speed = "3" | sped = "3" | `takes` names `sped`, which is not in [counters]
speed = "3" | speed = "-3" | `-3` is not a number
"half" | "{placement}" | uses the attribute `placement`
"half" | "{each}" | uses the attribute `each`
[["/bin/rm"]] | [{ file = "/etc/x", write = "0" }] | with a `file` below /sys
[["/bin/rm"]] | [{ file = "/sys/x", writes = "0" }] | a table with `file` and `write`
{ speed = "{speed}" } | { Speed = "7" } | the counter `Speed` is not a name
{ speed = "{speed}" } | { slot-1 = "7" } | or begins with `slot-`
{ speed = "{speed}" } | { speed = "{sped}" } | uses the attribute `sped`
"/bin/mk", "{disk}" | "mk", "{disk}" | `make` is a list of programs
"/bin/mk", "{disk}" | "/bin/{disk}", "" | `make` is a list of programs
[["/bin/rm"]] | [] | `remove` is a list of programs
timeout = 5 | timeout = 0 | 0 seconds is not between 1 and 100
{profile} | {profil} | `{profil}` uses the attribute `profil`, did you mean `profile`? known attributes are
value = "{number}", equals = "{placement}" | value = "{speed}", equals = "1"
    | uses the attribute `speed`
part_of = "{disk}"\n |  | no [[discover]] with `part_of` finds them
"#;

#[test]
fn a_mistake_is_named_with_its_line() {
    let error = |text: &str| parse("disk", text).err().unwrap_or("none".to_owned());
    assert_eq!(error(DISKS), "none");
    for [right, wrong, expected] in rows(MISTAKES) {
        let text = DISKS.replacen(&right, &wrong, 1);
        assert_ne!(text, DISKS, "{right}");
        let error = error(&text);
        assert!(error.contains(&expected), "{right} -> {wrong}: {error}");
        assert!(error.starts_with("disk.toml:"), "{error}");
    }
}

fn divisible(files: &[(&str, &str)]) -> (Vec<DeviceDivision>, Vec<String>) {
    divisible_as(DISKS, files)
}

fn divisible_as(class: &str, files: &[(&str, &str)]) -> (Vec<DeviceDivision>, Vec<String>) {
    let class = parse("disk", class).unwrap();
    let mut host = RecordedHost::default();
    for (path, text) in files {
        host.add_file(path, *text);
    }
    let inventory = discover::find_devices(&class, &host);
    discover::list_divisible_devices(&class, &inventory, &host)
}

const SPEED: (&str, &str) = ("/sys/disks/a/speed", "7\n");

#[test]
fn a_device_and_its_parts_are_the_same_whichever_are_made() {
    let (none, warnings) = divisible(&[SPEED, ("/sys/disks/b/speed", "9\n")]);
    assert_eq!(warnings, [""; 0]);
    let [a, b] = &none[..] else {
        panic!("{none:?}")
    };
    assert_eq!(a.whole_device.id.as_str(), "a");
    let slots = (0..8).map(|slot| (format!("slot-{slot}"), 1));
    let counters = slots.chain([("speed".to_owned(), 7)]).collect();
    assert_eq!(a.counters, counters);
    let named = |one: &DeviceDivision| -> Vec<String> {
        let name = |part: &PossiblePart| {
            let made = part.existing_id.as_ref().map_or("none", |id| id.as_str());
            format!("{} at {}: {made}", part.profile, part.placement())
        };
        one.parts.iter().map(name).collect()
    };
    assert_eq!(named(a), ["half at 0: none", "half at 4: none"]);
    assert_eq!(named(b)[2], "fast at 7: none");
    let part = &a.parts[1];
    let run = |command: &[&str]| PartAction::Run {
        command: command.iter().map(|one| (*one).to_owned()).collect(),
        library_path: Vec::new(),
    };
    let make = [run(&["/bin/mk", "a", "5"]), run(&["/bin/settle"])];
    assert_eq!(part.creation_steps, make);
    assert_eq!(part.removal_steps, [run(&["/bin/rm", "a", "5", "half"])]);
    let takes: Vec<_> = part.consumed_counters.keys().map(String::as_str).collect();
    assert_eq!(takes, ["slot-4", "slot-5", "slot-6", "slot-7", "speed"]);
    let (divided, warnings) = divisible(&[SPEED, ("/sys/disks/a/p5/x", "")]);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(named(&divided[0]), ["half at 0: none", "half at 4: ap5"]);
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

/// What the driver's own tool says: profiles, places and amounts.
const FACTS: &str = "boathook uptime\t100\na profile\t1\na profile\t9\n\
    a 1 name\tsmall_1.x\na 1 places\t0,1,2\na 1 media\t1\n\
    a 9 name\tall\na 9 places\t0\na 9 size\t3\na 9 media\t2\na 1 2 number\t7\n";

fn class_with_facts() -> String {
    let (start, _) = DISKS.split_once("[[parts]]").unwrap();
    let start = start.replace("counters = { speed = \"{speed}\" }\n", "");
    start
        + r#"[[facts]]
program = ["/bin/tool"]
lines = []
[[parts]]
each = "{disk} profile"
attributes = [
  { name = "name", fact = "{disk} {each} name", default = "" },
  { name = "places", fact = "{disk} {each} places", default = "" },
  { name = "size", fact = "{disk} {each} size", default = "1" },
  { name = "media", fact = "{disk} {each} media", default = "" },
  { name = "number", fact = "{disk} {each} {placement} number", default = "" },
]
profile = "{name}"
placements = "{places}"
slots = "{size}"
takes = { media = "{media}" }
found = { value = "{number}", equals = "{number}" }
make = [["/bin/mk", "{disk}", "{each}:{placement}"]]
remove = [["/bin/rm", "{number}"], { file = "/sys/disks/{disk}/remove", write = "{number}" }]
"#
}

#[test]
fn parts_may_be_those_that_facts_name() {
    let uptime = ("/proc/uptime", "200.0 1.0\n");
    let facts = ("/run/boathook/facts/disk", FACTS);
    let made = ("/sys/disks/a/p7/x", "");
    let (found, warnings) = divisible_as(&class_with_facts(), &[SPEED, uptime, facts, made]);
    assert_eq!(warnings, [""; 0]);
    let one = &found[0];
    let name = |part: &PossiblePart| format!("{}@{:?}", part.profile, part.slots);
    let names: Vec<String> = one.parts.iter().map(name).collect();
    let wanted = [
        "small_1.x@0..1",
        "small_1.x@1..2",
        "small_1.x@2..3",
        "all@0..3",
    ];
    assert_eq!(names, wanted);
    assert_eq!((one.counters["media"], one.counters["slot-2"]), (2, 1));
    assert_eq!(one.counters.len(), 4);
    let [_, _, third, all] = &one.parts[..] else {
        panic!("{names:?}")
    };
    assert_eq!(third.existing_id.as_ref().unwrap().as_str(), "ap7");
    let removed = PartAction::Write("/sys/disks/a/remove".into(), "7".to_owned());
    assert_eq!(third.removal_steps[1], removed);
    // Where nothing is there is nothing to remove.
    assert_eq!(
        (
            &all.existing_id,
            all.removal_steps.len(),
            all.consumed_counters["media"]
        ),
        (&None, 0, 2)
    );
    // A tool that says nonsense, or nothing.
    for (right, wrong, expected) in [
        (
            "0,1,2",
            "0,x",
            "a: is not divided: `placements`: `x` is not a number",
        ),
        ("0,1,2", "0,40", "a part ends at the slot 41"),
        (
            "small_1.x",
            "Small",
            "the profile `Small` is not of 1 to 32",
        ),
        ("media\t2", "media\tN/A", "`media`: `N/A` is not a number"),
    ] {
        let facts = ("/run/boathook/facts/disk", &*FACTS.replace(right, wrong));
        let (found, warnings) = divisible_as(&class_with_facts(), &[SPEED, uptime, facts]);
        assert!(found.is_empty(), "{wrong}: {found:?}");
        assert!(warnings[0].contains(expected), "{wrong}: {warnings:?}");
    }
    let (found, warnings) = divisible_as(&class_with_facts(), &[SPEED, uptime]);
    assert!(found.is_empty() && warnings.is_empty(), "{warnings:?}");
}

#[test]
fn what_concerns_the_whole_is_no_fault_of_parts() {
    let checks = "file = \"speed\" }]\nhealth = [{ value = \"{speed}\", not_equals = \"7\", of_whole = true }, \
                  { file = \"ok\", equals = \"1\" }]\n";
    let class = DISKS.replacen("file = \"speed\" }]\n", checks, 1);
    for (ok, expected) in [("1", true), ("0", false)] {
        let (found, _) = divisible_as(&class, &[SPEED, ("/sys/disks/a/ok", ok)]);
        let whole = &found[0].whole_device;
        assert!(!whole.health.is_healthy());
        assert_eq!(whole.has_healthy_parts(), expected, "{}", whole.health);
    }
    let error = parse(
        "disk",
        &class.replace("equals = \"1\" }", "equals = \"1\", of_whole = true }"),
    );
    assert!(error.unwrap_err().contains("`of_whole` goes with `value`"));
    let (alone, _) = class.split_once("[[parts]]").unwrap();
    let mut host = RecordedHost::default();
    host.add_file("/sys/disks/a/speed", "7");
    host.add_file("/sys/disks/a/ok", "1");
    let found = discover::find_devices(&parse("disk", alone).unwrap(), &host);
    assert!(!found.devices[0].health.is_healthy());
}

#[test]
fn parts_that_are_made_together_exclude_those_of_another_table() {
    let together =
        |text: &str, count: usize| text.replacen("found =", "together = true\nfound =", count);
    let class = together(DISKS, 1);
    let (found, _) = divisible_as(&class, &[SPEED]);
    assert!(found[0].parts.iter().all(|part| part.is_grouped));
    let (found, warnings) = divisible_as(&class, &[("/sys/disks/b/speed", "9")]);
    assert!(found.is_empty(), "{found:?}");
    let wanted = "[[parts]] with `together` and without are of the same device";
    assert!(warnings[0].contains(wanted), "{warnings:?}");
    let class = together(DISKS, 2).replace("\"7\"", "\"5-7\"");
    let (found, _) = divisible_as(&class, &[("/sys/disks/b/speed", "9")]);
    let one = &found[0];
    let fit = |chosen: &[&PossiblePart]| {
        one.counters.iter().all(|(name, amount)| {
            let taken = chosen
                .iter()
                .filter_map(|part| part.consumed_counters.get(name));
            taken.sum::<u64>() <= *amount
        })
    };
    let (half, fast): (Vec<_>, Vec<_>) = one.parts.iter().partition(|part| part.profile == "half");
    assert_eq!((half.len(), fast.len()), (2, 3));
    assert!(fit(&half) && fit(&fast));
    for half in &half {
        assert!(fast.iter().all(|fast| !fit(&[half, fast])));
    }
}
