//! Describes the nodes of a directory in /dev, such as /dev/snd, as one device.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::HostView;
use device_class::host::Entry;

use super::Target;
use super::toml_text::quote_toml;

/// Returns the lines of the list `nodes` in a class file, for the device nodes `node_names` of a
/// directory. Names that differ only in their numbers share one line, because other hosts may have
/// other numbers.
pub(super) fn format_node_lines(directory: &str, node_names: &[String]) -> String {
    let items = list_node_items(directory, node_names).into_iter();
    items.map(|item| format!("  {item},\n")).collect()
}

/// Returns the items of the list `nodes` in a class file, for the device nodes `node_names` of a
/// directory. Names that differ only in their numbers share one item.
pub(super) fn list_node_items(directory: &str, node_names: &[String]) -> BTreeSet<String> {
    let names = node_names.iter();
    names
        .map(|name| format_node_item(directory, name))
        .collect()
}

/// Returns the names of the device nodes in a directory of the host. Leaves out names with
/// characters that have a meaning in patterns of class files.
pub(super) fn list_node_names(directory: &str, host: &dyn HostView) -> Vec<String> {
    let mut names = host.list(Path::new(directory)).unwrap_or_default();
    names.retain(|name| {
        let has_plain_path = Target::parse(&format!("{directory}/{name}")).is_ok();
        let entry = host.entry(&Path::new(directory).join(name));
        has_plain_path && matches!(entry, Ok(Some(Entry::Device(_))))
    });
    names
}

fn format_node_item(directory: &str, node_name: &str) -> String {
    let (pattern, template) = replace_numbers(node_name);
    let quote = |name: &str| quote_toml(&format!("{directory}/{name}"));
    if pattern == node_name {
        return format!("{{ path = {}, optional = true }}", quote(node_name));
    }
    let (pattern, template) = (quote(&pattern), quote(&template));
    format!("{{ for_each = {pattern}, path = {template} }}")
}

/// Returns the pattern that matches `node_name` and the same name with other numbers, and the
/// template for the matched name: `{a:number}` and `{a}` for each number. For example, `pcmC0D3`
/// gives `pcmC{a:number}D{b:number}` and `pcmC{a}D{b}`. A name without a number is returned
/// unchanged.
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
        let lines = format_node_lines("/dev/snd", &names.map(str::to_owned));
        let expected = "  { for_each = \"/dev/snd/controlC{a:number}\", path = \"/dev/snd/controlC{a}\" },\n  \
            { for_each = \"/dev/snd/pcmC{a:number}D{b:number}p\", path = \"/dev/snd/pcmC{a}D{b}p\" },\n  \
            { path = \"/dev/snd/seq\", optional = true },\n";
        assert_eq!(lines, expected);
    }
}
