//! Describes the nodes of a directory in /dev, such as /dev/snd, as one device.

use std::collections::BTreeSet;

/// Returns the lines of the list `nodes` in a class file. The list contains the device nodes
/// `node_names` of a directory. Names that differ only in their numbers have one common line,
/// because another host may have other numbers.
pub(super) fn format_nodes_key(directory: &str, node_names: &[String]) -> String {
    let lines: BTreeSet<String> = node_names
        .iter()
        .map(|node_name| format_node_line(directory, node_name))
        .collect();
    lines.into_iter().collect()
}

fn format_node_line(directory: &str, node_name: &str) -> String {
    let (pattern, template) = replace_numbers(node_name);
    if pattern == node_name {
        return format!("  {{ path = \"{directory}/{node_name}\", optional = true }},\n");
    }
    format!("  {{ for_each = \"{directory}/{pattern}\", path = \"{directory}/{template}\" }},\n")
}

/// Returns the pattern that matches a name with other numbers, and the template of the name that it
/// matches. A name without a number is returned unchanged.
pub(super) fn replace_numbers(node_name: &str) -> (String, String) {
    let (mut pattern, mut template) = (String::new(), String::new());
    let mut capture_names = 'a'..='z';
    let mut remaining_name = node_name;
    while let Some(start) = remaining_name.find(|c: char| c.is_ascii_digit()) {
        let (text, number) = remaining_name.split_at(start);
        let after_number = number.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(capture) = capture_names.next() else {
            break;
        };
        pattern += &format!("{text}{{{capture}:number}}");
        template += &format!("{text}{{{capture}}}");
        remaining_name = after_number;
    }
    (pattern + remaining_name, template + remaining_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_differ_in_numbers_share_a_line() {
        let names = ["controlC0", "controlC1", "pcmC0D0p", "pcmC1D10p", "seq"];
        let lines = format_nodes_key("/dev/snd", &names.map(str::to_owned));
        let expected = "  { for_each = \"/dev/snd/controlC{a:number}\", path = \"/dev/snd/controlC{a}\" },\n  \
            { for_each = \"/dev/snd/pcmC{a:number}D{b:number}p\", path = \"/dev/snd/pcmC{a}D{b}p\" },\n  \
            { path = \"/dev/snd/seq\", optional = true },\n";
        assert_eq!(lines, expected);
    }
}
