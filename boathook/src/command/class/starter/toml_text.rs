//! Formats strings and lists as TOML, for the text of a class file.

/// Returns the line of the TOML key `nodes` with these items, such as
/// `nodes = ["/dev/npu{index}"]`. Returns several lines if an item is a table.
pub(super) fn format_nodes_line(items: &[String]) -> String {
    if items.iter().any(|item| item.starts_with('{')) {
        let lines: String = items.iter().map(|item| format!("  {item},\n")).collect();
        return format!("nodes = [\n{lines}]\n");
    }
    format!("nodes = [{}]\n", items.join(", "))
}

pub(super) fn quote_toml(text: &str) -> String {
    format!("\"{}\"", escape_toml(text))
}

/// Escapes the backslashes of `text` for a basic string of TOML. Other characters that need a
/// backslash do not occur, because [`super::Target::parse`] refuses paths that contain them.
pub(super) fn escape_toml(text: &str) -> String {
    text.replace('\\', "\\\\")
}

/// Returns a regular expression that matches exactly `text`.
pub(super) fn escape_regex(text: &str) -> String {
    let is_operator = |c: char| "\\.+*?()|[]{}^$".contains(c);
    let mut regex = String::new();
    for character in text.chars() {
        regex.extend(is_operator(character).then_some('\\'));
        regex.push(character);
    }
    regex
}
