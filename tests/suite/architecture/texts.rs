//! Behaviour never depends on a text for people. Such a text is made by `Display`, by `format!` or
//! by a function `describe_…`, or it is in a field for messages; nothing compares it with another
//! text, searches it or parses it. Who changes a message changes nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use harness::binaries;

use super::names::rust_files;
use super::read;

/// The types whose `Display` is for people: plans, requests and what they are made of, and what is
/// said about a container's cgroups.
const FOR_PEOPLE: &str = "InjectionPlan RequestSource Authority StepOwner CapabilityNeed \
    SpecificationChange SystemdReport UnitOutcome LinkReport CgroupReport RuleChangeOutcome \
    HostDeviceNode DeviceHolder Pod FileErrorDetails DeviceError Health Inventory DeviceCandidate Entry \
    SimilarDevice Note";

/// The types whose `Display` is a format that is read again, by the kernel, by systemd, by engines
/// or by the type itself. A program's own files, such as attachment records, have formats of their
/// own.
const FORMATS: &str = "DeviceList ListEntry Unit PodUid CdiName PathPattern HostRecorder \
    DeviceKind DeviceNumber Access DeviceRule Template LinuxCapability $type";

/// The folders whose types are listed: those of devices, plans and records.
const FOLDERS: [&str; 6] = [
    "device-class/src/",
    "injection-plan/src/",
    "hook/src/attachment/",
    "boathook/src/live/",
    "hook/src/trust/",
    "hook/src/cgroup/",
];

/// The fields that have texts for people.
const FIELDS: [&str; 7] = [
    "requested_by",
    "authorized_by",
    "owner_labels",
    "warnings",
    "notes",
    "reason",
    "subject",
];

/// A field that has a text for people in this type alone, with the usual name of its variable.
const FIELD_OF_FINDING: &str = "finding.text";

/// The functions that compare, search or parse a text, beside those that split it.
const READERS: [&str; 16] = [
    "starts_with",
    "ends_with",
    "contains",
    "strip_prefix",
    "strip_suffix",
    "find",
    "rfind",
    "parse",
    "lines",
    "chars",
    "bytes",
    "matches",
    "eq",
    "ne",
    "cmp",
    "eq_ignore_ascii_case",
];

/// By file: the code around a text that is none for people, or whose use does no harm.
const EXCEPTIONS: [(&str, &str); 8] = [
    // The pointer of RFC 6901 in a patch that was received.
    (
        "cluster/src/webhook/mutate.rs",
        "operation.path().to_string()",
    ),
    // The text of a template is what a class file has.
    (
        "device-class/src/class/property_program.rs",
        "program_path.to_string()",
    ),
    ("device-class/src/class/health.rs", "path.to_string()"),
    ("device-class/src/class/parts.rs", "to_string()"),
    // A number is compared with its text in a file of the kernel.
    ("dra/src/slice/attributes.rs", "number.to_string() =="),
    // The names of resources, and the id of hardware below its bus.
    (
        "boathook/src/command/doctor/device_name.rs",
        "resource.to_string() == kind",
    ),
    ("boathook/src/command/class/starter/hardware.rs", "format!("),
    // The line that this program wrote into the file.
    ("runtime-config/src/toml_text/strip.rs", "format!("),
];

#[test]
fn nothing_compares_or_parses_a_text_for_people() {
    let tree = binaries::source_tree();
    let (mut found, mut excepted) = (Vec::new(), BTreeSet::new());
    for (path, code) in shipped_code(tree) {
        for use_of_text in find_uses(&code) {
            let mut exceptions = EXCEPTIONS.iter();
            match exceptions.find(|(file, text)| *file == path && use_of_text.contains(text)) {
                Some((file, _)) => drop(excepted.insert(*file)),
                None => found.push(format!("{path}: {use_of_text}")),
            }
        }
    }
    assert!(
        found.is_empty(),
        "texts for people are compared or parsed (ARCHITECTURE.md, Invariants: devices, rules and \
         authorities have types):\n{}",
        found.join("\n")
    );
    for (file, _) in EXCEPTIONS {
        assert!(excepted.contains(file), "{file} needs no exception");
    }
}

#[test]
fn each_display_is_for_people_or_a_format() {
    let listed: Vec<&str> = FOR_PEOPLE.split_whitespace().collect();
    let formats: Vec<&str> = FORMATS.split_whitespace().collect();
    let mut displayed = Vec::new();
    for (path, code) in shipped_code(binaries::source_tree()) {
        if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for of_text in ["FromStr for ", "TryFrom<&str> for ", "TryFrom<String> for "] {
            for name in find_implementors(&code, of_text) {
                assert!(
                    !listed.contains(&&*name),
                    "{path} parses {name}, whose Display is for people"
                );
            }
        }
        displayed.extend(find_implementors(&code, "Display for "));
    }
    for name in &displayed {
        let count = listed
            .iter()
            .chain(&formats)
            .filter(|it| *it == name)
            .count();
        assert_eq!(
            count, 1,
            "{name}: its Display is either for people or a format"
        );
    }
    for name in listed.iter().chain(&formats) {
        assert!(
            displayed.iter().any(|it| it == name),
            "{name} has no Display"
        );
    }
}

#[test]
fn uses_of_texts_are_found_across_lines() {
    for (code, count) in [
        ("grant.authorized_by.starts_with(\"attached \")", 1),
        ("if step.owner_labels == \"libraries\" {}", 1),
        ("if \"a\" != grant.requested_by {}", 1),
        ("reason == NO_DEVICE", 0),
        ("[finding] if finding.text == NO_DEVICE => {}", 1),
        ("finding.text.starts_with(\"no\")", 1),
        ("item.text == \"all\"", 0),
        ("error\n    .to_string()\n    .contains(\"x\")", 1),
        ("format!(\"{followed:?} {}\", told(1)) == last", 1),
        ("last == format!(\"{followed:?}\")", 1),
        ("grant.describe_devices().split(',')", 1),
        ("one.subject.strip_prefix(\"class \")", 1),
        ("// authorized_by == \"a\"", 0),
        ("text.push_str(&grant.authorized_by); other == x", 0),
        ("plan.warnings.push(error.to_string());", 0),
    ] {
        assert_eq!(find_uses(code).len(), count, "{code}");
    }
}

/// Returns the types for which a file implements a trait.
fn find_implementors(code: &str, of_trait: &str) -> Vec<String> {
    let lines = code
        .lines()
        .filter(|line| line.trim_start().starts_with("impl"));
    let types = lines.filter_map(|line| Some(line.split_once(of_trait)?.1));
    let names = types.map(|name| name.split(|c| !is_word(c) && c != '$').next());
    names.flatten().map(str::to_owned).collect()
}

/// Returns the uses of texts for people in a file, each with what stands around it.
fn find_uses(code: &str) -> Vec<String> {
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let code = words.join(" ").replace(" .", ".");
    let mut uses = Vec::new();
    for (start, end) in find_texts(&code) {
        let before = code[..start].trim_end_matches(|c| is_word(c) || ".&*()".contains(c));
        let after = code[end..]
            .strip_prefix(".as_str()")
            .unwrap_or(&code[end..]);
        let reader = after
            .strip_prefix('.')
            .and_then(|after| after.split_once('('));
        let is_read = reader.is_some_and(|(name, _)| is_reader(name));
        let is_compared = ["==", "!="].iter().any(|operator| {
            before.trim_end().ends_with(operator) || after.trim_start().starts_with(operator)
        });
        if is_read || is_compared {
            let shown = after
                .char_indices()
                .nth(20)
                .map_or(after, |(at, _)| &after[..at]);
            uses.push(format!("{}{}", &code[before.trim_end().len()..end], shown));
        }
    }
    uses
}

/// Returns the beginnings and the ends of the texts for people in code of one line.
fn find_texts(code: &str) -> Vec<(usize, usize)> {
    let mut texts = Vec::new();
    for (at, text) in code.match_indices(".to_string()") {
        texts.push((at, at + text.len()));
    }
    for (at, name) in code
        .match_indices("format!")
        .chain(code.match_indices("describe_"))
    {
        let is_whole = !code[..at].ends_with(is_word);
        let rest = code[at + name.len()..].trim_start_matches(is_word);
        let arguments = code.len() - rest.len();
        if is_whole && rest.starts_with('(') {
            texts.push((at, arguments + find_end(rest)));
        }
    }
    for (at, name) in code.match_indices(FIELD_OF_FINDING) {
        texts.push((at, at + name.len()));
    }
    for field in FIELDS {
        for (at, name) in code.match_indices(field) {
            let end = at + name.len();
            if code[..at].ends_with('.') && !code[end..].starts_with(is_word) {
                texts.push((at, end));
            }
        }
    }
    texts
}

/// Returns the length of the part in parentheses with which code begins.
fn find_end(code: &str) -> usize {
    let mut depth = 0;
    let end = code.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or(code.len(), |(at, _)| at + 1)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a function compares, searches or parses a text.
fn is_reader(name: &str) -> bool {
    READERS.contains(&name) || name.starts_with("split") || name.starts_with("rsplit")
}

/// Returns the shipped files and their code, without their tests.
fn shipped_code(tree: &Path) -> Vec<(String, String)> {
    let mut shipped = Vec::new();
    for file in rust_files(tree) {
        let path = file
            .strip_prefix(tree)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let is_test =
            path.contains("/tests") || path.ends_with("tests.rs") || path.contains("fuzz");
        if path.contains("/src/") && !path.starts_with("tests/") && !is_test {
            let text = read(&file);
            let code = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            shipped.push((path, code.to_owned()));
        }
    }
    shipped
}
