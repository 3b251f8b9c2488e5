//! Describes the nodes of a directory in /dev, such as /dev/snd, as one device.

use std::collections::BTreeSet;

/// Returns the lines of the key `nodes` in a class file for the nodes `names` of a directory. The
/// numbers in the names may differ on another host, so there is one line for all nodes whose names
/// differ only in numbers.
pub(super) fn describe_nodes(directory: &str, names: &[String]) -> String {
    let lines: BTreeSet<String> = names
        .iter()
        .map(|name| describe_node(directory, name))
        .collect();
    lines.into_iter().collect()
}

fn describe_node(directory: &str, name: &str) -> String {
    let (mut pattern, mut template) = (String::new(), String::new());
    let mut captures = 'a'..='z';
    let mut rest = name;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (text, number) = rest.split_at(start);
        let after_number = number.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(capture) = captures.next() else {
            break;
        };
        pattern += &format!("{text}{{{capture}:number}}");
        template += &format!("{text}{{{capture}}}");
        rest = after_number;
    }
    if pattern.is_empty() {
        return format!("  {{ path = \"{directory}/{name}\", optional = true }},\n");
    }
    format!(
        "  {{ for_each = \"{directory}/{pattern}{rest}\", path = \"{directory}/{template}{rest}\" }},\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_differ_in_numbers_share_a_line() {
        let names = ["controlC0", "controlC1", "pcmC0D0p", "pcmC1D10p", "seq"];
        let lines = describe_nodes("/dev/snd", &names.map(str::to_owned));
        let expected = "  { for_each = \"/dev/snd/controlC{a:number}\", path = \"/dev/snd/controlC{a}\" },\n  \
            { for_each = \"/dev/snd/pcmC{a:number}D{b:number}p\", path = \"/dev/snd/pcmC{a}D{b}p\" },\n  \
            { path = \"/dev/snd/seq\", optional = true },\n";
        assert_eq!(lines, expected);
    }
}
