//! Finds the members of an object in a text that is known to be valid JSON.

use std::ops::Range;

/// Where one member of an object stands.
#[derive(Debug)]
pub(super) struct Member {
    /// The key, with its quotes.
    pub(super) key: Range<usize>,
    /// The value.
    pub(super) value: Range<usize>,
}

impl Member {
    /// Whether this is the member of that name, escapes decoded.
    pub(super) fn is_named(&self, text: &str, name: &str) -> bool {
        serde_json::from_str::<String>(&text[self.key.clone()]).is_ok_and(|key| key == name)
    }
}

/// The members of the object that spans `object`, braces included; none when
/// the value there is no object.
pub(super) fn members(text: &str, object: Range<usize>) -> Vec<Member> {
    let bytes = &text.as_bytes()[..object.end];
    let mut found = Vec::new();
    if bytes.get(object.start) != Some(&b'{') {
        return found;
    }
    let mut at = object.start + 1;
    loop {
        at = skip(bytes, at, |b| b.is_ascii_whitespace() || b == b',');
        if bytes.get(at) != Some(&b'"') {
            return found;
        }
        let key = at..value_end(bytes, at);
        let value = skip(bytes, key.end, |b| b.is_ascii_whitespace() || b == b':');
        at = value_end(bytes, value);
        found.push(Member {
            key,
            value: value..at,
        });
    }
}

fn skip(bytes: &[u8], from: usize, skipped: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|b| skipped(**b)).count()
}

/// The offset after the value that begins at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => return at,
            b if depth == 0 && at > start && b.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at;
        }
    }
    at
}

/// The offset after the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}
