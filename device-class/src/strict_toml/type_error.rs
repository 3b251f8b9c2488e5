//! serde's errors about a value of the wrong type, in the words of TOML.

/// The message for a value at `at` in `text`, which is that of `key`.
pub(super) fn in_words(message: &str, text: &str, at: Option<usize>, key: Option<&str>) -> String {
    let rest = at.and_then(|at| text.get(at..)).unwrap_or_default();
    if message.contains("leading zero") {
        return leading_zero(text, at);
    }
    let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .and_then(|types| types.split_once(", expected "))
    else {
        return message.to_owned();
    };
    let found = found.split(' ').next().unwrap_or_default();
    let name = key.unwrap_or("the value");
    let written = value_at(rest);
    let is_number = expected.starts_with(['i', 'u', 'f'])
        && expected[1..].bytes().all(|byte| byte.is_ascii_digit());
    let is_list = expected.contains("sequence") || expected.contains("list");
    let is_text = expected.contains("string") || expected.contains("text");
    let is_table = expected.contains("map") || expected.contains("struct");
    match (found, rest.as_bytes().first()) {
        // A list of tables represents its keys' values in their order.
        ("map", Some(b'[')) if !is_list && rest.starts_with("[[") => match header(rest) {
            Some(header) => format!("there is only one of these: write [{header}]"),
            None => message.to_owned(),
        },
        // The header of a table has no value.
        ("map", Some(b'[')) if is_list => match header(rest) {
            Some(header) => format!("there may be several of these: write [[{header}]]"),
            None => "expected a list: write [ ... ]".to_owned(),
        },
        ("map", _) if is_list && key.is_some() => {
            format!("expected a list: write {name} = [{written}]")
        }
        ("map", _) if is_list => "expected a list: write its header as [[...]]".to_owned(),
        ("sequence", _) if is_table => match header(rest) {
            Some(header) => format!("there is only one of these: write [{header}]"),
            None => "expected one table, not a list: write { ... }".to_owned(),
        },
        ("sequence", _) if is_text => {
            format!("expected one string, not a list: write {name} = \"...\"")
        }
        ("string", _) if is_number => {
            let number = written.trim_matches(['"', '\'']);
            format!("expected a number without quotes: write {name} = {number}")
        }
        ("string", _) if expected == "a boolean" => {
            let word = written.trim_matches(['"', '\'']);
            format!("expected true or false without quotes: write {name} = {word}")
        }
        ("string", _) if is_list => format!("expected a list: write {name} = [{written}]"),
        ("integer" | "floating" | "boolean", _) if is_text => {
            format!(
                "expected a string in quotes: write {name} = \"{}\"",
                octal(&written)
            )
        }
        _ => message.to_owned(),
    }
}

/// TOML has no octal numbers that begin with 0 alone.
fn leading_zero(text: &str, at: Option<usize>) -> String {
    let number = at.and_then(|at| {
        let before = text.get(..at)?;
        let begin = before
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + 1);
        let value = value_at(text.get(begin..)?);
        let key = super::key_before(text, begin)?;
        Some(format!("{key} = \"{value}\""))
    });
    match number {
        Some(written) => {
            format!("a number has no leading zero; a mode is a string: write {written}")
        }
        None => "a number has no leading zero; a mode is a string in quotes".to_owned(),
    }
}

/// `0660` for `0o660`.
fn octal(number: &str) -> String {
    match number.strip_prefix("0o") {
        Some(digits) => format!("0{digits}"),
        None => number.to_owned(),
    }
}

/// The value that begins here, as it is written: to the end of the line or of what
/// it is in.
fn value_at(rest: &str) -> String {
    let line = rest.lines().next().unwrap_or_default();
    let line = line.split(" #").next().unwrap_or_default();
    let mut depth = 0;
    let end = line.find(|c| {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth -= 1,
            _ => {}
        }
        depth < 0 || depth == 0 && c == ','
    });
    line[..end.unwrap_or(line.len())].trim().to_owned()
}

/// The name in a header such as `[discover]` or `[[device]]`.
fn header(rest: &str) -> Option<&str> {
    let name = rest.trim_start_matches('[');
    let end = name.find(']')?;
    let name = name.get(..end)?.trim();
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (rest.starts_with('[') && !name.is_empty() && name.chars().all(is_bare)).then_some(name)
}
