//! Class files with a mistake: the message has the line, the key and what is wrong.

use crate::{parse, rows};

const GOOD: &str = r#"version = 1
resource = "example.com/chip"
[request]
env = "CHIPS"
[[discover]]
path = "/dev/chip{index:number}"
[device]
id = "chip-{index}"
health = [{ file = "/sys/chip{index}/state", equals = "up" }]
nodes = ["/dev/chip{index}", { path = "/dev/ctl{index}", mode = "0660" }]
[sharing]
replicas = 4
[[edits]]
files = ["/etc/chip.conf"]
[[edits]]
nodes = ["/dev/chipctl"]
"#;

fn error(text: &str) -> String {
    parse("chip", text).err().unwrap_or("none".to_owned())
}

/// What is replaced in [`GOOD`], by what, and how the message begins.
const MISTAKES: &str = r#"
[[discover]] | [discover] | chip.toml:5: [discover]: must be a list, and is a table; write [[discover]]
[device] | [[device]] | chip.toml:7: [[device]]: must be a table, and is a list; write [device]
replicas = 4 | replicas = "4"
    | chip.toml:12: replicas: must be a whole number, and is the text "4"; write replicas = 4
replicas = 4 | replicas = "four" | chip.toml:12: replicas: must be a whole number, and is the text "four"
replicas = 4 | replicas = 4.5 | chip.toml:12: replicas: must be a whole number, and is a number with a fraction
health = [{ file = "/sys/chip{index}/state", equals = "up" }]
    | health = { file = "/sys/chip{index}/state", equals = "up" }
    | chip.toml:9: health: must be a list, and is a table; write health = [{ ... }]
files = ["/etc/chip.conf"] | files = "/etc/chip.conf"
    | chip.toml:14: files: must be a list, and is the text "/etc/chip.conf"; write files = ["/etc/chip.conf"]
files = ["/etc/chip.conf"] | files = [["/etc/chip.conf"]]
    | chip.toml:14: files: must be a text or a table, and is a list
id = "chip-{index}" | id = "chip-{index}"\ngroup = "dialout"
    | chip.toml:9: `group` in [device] must be a template that differs between devices, such as
id = "chip-{index}" | id = "chip-{index}"\naliases = ["{index}", "All"]
    | chip.toml:9: the alias `All` is a word that a request uses for all devices or for none
env = "CHIPS" | env = ["CHIPS"]
    | chip.toml:4: env: must be a text in quotes, and is a list; write env = "CHIPS"
id = "chip-{index}" | id = 7 | chip.toml:8: id: must be a text in quotes, and is the number 7; write id = "7"
id = "chip-{index}" | di = "chip-{index}" | chip.toml:8: unknown key `di`, did you mean `id`?
mode = "0660" | mode = 0660 | chip.toml:10: mode: unexpected leading zero
mode = "0660" | mode = 0o660
    | chip.toml:10: mode: must be a text in quotes, and is the number 432; write mode = "0660"
path = "/dev/chip{index:number}" | path = "/dev/chip{index:number}"\nadditional = "true"
    | chip.toml:7: additional: must be true or false, and is the text "true"; write additional = true
path = "/dev/chip{index:number}" | path = "/dev/chip{index:number}"\nsymlink = "require"
    | chip.toml:7: symlink: `require` is none of `required`, `refused`; did you mean `required`?
resource = "example.com/chip" | description = "chip" | chip.toml:1: the key `resource` is missing
example.com/chip | chip
    | chip.toml:2: resource `chip` is not of the form domain/name; write it as vendor.example/chip
example.com/chip | kubernetes.io/chip
    | chip.toml:2: resource `kubernetes.io/chip` has a domain that Kubernetes reserves; use your own
example.com/chip | example.com/my chip
    | chip.toml:2: name of the resource `my chip` may not have the character ' '; allowed
    are a-z A-Z 0-9 - _ .; write it as vendor.example/chip
example.com/chip | -x.com/chip
    | chip.toml:2: each part of resource `-x.com/chip` has to begin and end with a letter or a digit
replicas = 4 | replicas = 4\ncount_resource = "kubernetes.io/chips"
    | chip.toml:13: resource `kubernetes.io/chips` has a domain that Kubernetes reserves
replicas = 4 | replicas = 4\ncount_resource = "example.com/{index}"
    | chip.toml:13: name of the resource `{index}` may not have the character '{'
replicas = 4 | replicas = 4\ncount_resource = "example.com/chip"
    | chip.toml:2: count_resource `example.com/chip` is the name of the devices' resource
env = "CHIPS" | env = "CHIPS"\nrequirements = { env_prefix = "R_", values = {}, warn_within_major = "x" }
    | chip.toml: warn_within_major `x` is not a name in `values`
env = "CHIPS" | env = "PATH"
    | chip.toml:4: `PATH` is a variable that containers have for another purpose;
    choose a name such as MYCHIP_VISIBLE_DEVICES
env = "CHIPS" | env = "LD_PRELOAD" | chip.toml:4: `LD_PRELOAD` is a variable that containers have
id = "chip-{index}" | id = "chip-{index}"\nnuma = "1"
    | chip.toml:9: numa `1` is not the path of a device's directory in /sys
# The same text is right for a device, in line 10.
nodes = ["/dev/chipctl"] | nodes = ["/dev/chip{index}"]
    | chip.toml:16: `/dev/chip{index}` uses the attribute `index`; [[edits]] are given once
    per container and use the host's attributes only (none), so put what
    belongs to one device into [device]
nodes = ["/dev/chipctl"] | libraries = ["lib{index}.so.1"]
    | chip.toml:16: `lib{index}.so.1` uses the attribute `index`; [[edits]] are given
id = "chip-{index}" | id = "chip-{serial}"
    | chip.toml:8: `chip-{serial}` uses the attribute `serial`; known attributes are index
"#;

#[test]
fn the_message_has_the_line_and_the_key() {
    assert_eq!(error(GOOD), "none");
    for [right, wrong, expected] in rows(MISTAKES) {
        assert_eq!(GOOD.matches(&right).count(), 1, "{right}");
        let found = error(&GOOD.replace(&right, &wrong));
        assert!(
            found.starts_with(&expected),
            "{wrong}\n  {found}\n  {expected}"
        );
    }
}
