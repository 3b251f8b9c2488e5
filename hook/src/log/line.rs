//! Formats and parses the lines of the node's log, and selects them by time and by container.

use device_class::config::LogLevel;
use device_class::name::is_random_container_id;

use super::time;

/// The text with which each message of a level begins. The prefix of errors comes last, because the
/// others begin with it, and the parser takes the first match.
const LEVEL_PREFIXES: [(LogLevel, &str); 3] = [
    (LogLevel::Info, "boathook: info: "),
    (LogLevel::Warning, "boathook: warning: "),
    (LogLevel::Error, "boathook: "),
];

/// A line of the node's log: `TIME boathook: [LEVEL: ][container ID: ]TEXT`.
#[derive(Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// The time stamp in UTC, such as `2026-11-28T09:30:00Z`.
    pub time: &'a str,
    pub level: LogLevel,
    /// The id of the container. `None` if the message does not begin with `container ID`.
    pub container_id: Option<&'a str>,
    /// The message without the container's id.
    pub text: &'a str,
}

impl<'a> LogLine<'a> {
    /// Parses a line of the log. Returns `None` if the line does not begin with a time and the
    /// prefix of a level, such as `boathook: info: `.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (time, message) = line.split_once(' ')?;
        let (level, message) = LEVEL_PREFIXES
            .into_iter()
            .find_map(|(level, prefix)| Some((level, message.strip_prefix(prefix)?)))?;
        let after_keyword = message.strip_prefix("container ");
        let (container_id, text) = match after_keyword.and_then(|text| text.split_once(": ")) {
            Some((id, text)) if !id.contains(' ') => (Some(id), text),
            // The message is a sentence about the container, such as `container ID has ended`.
            _ => {
                let id = after_keyword.and_then(|text| text.split([':', ' ']).next());
                (id, message)
            }
        };
        Some(LogLine {
            time,
            level,
            container_id,
            text,
        })
    }
}

/// Returns the text with which messages of the level `level` begin, such as `boathook: warning: `.
pub(super) fn level_prefix(level: LogLevel) -> &'static str {
    let mut prefixes = LEVEL_PREFIXES.into_iter();
    prefixes
        .find(|(prefix_level, _)| *prefix_level == level)
        .map_or("", |(_, prefix)| prefix)
}

/// Reports whether a log line contains `container_id` as a whole word. A part of a word does not
/// count, because the longer id of another container may contain `container_id`.
pub fn contains_container_id(line: &str, container_id: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || "_.-/".contains(c)));
    words.any(|word| word == container_id)
}

/// Replaces each random container id (64 hexadecimal digits) in `line` by the text that `label`
/// returns for it, such as a shorter id. Only whole words are replaced.
pub(super) fn replace_random_ids(line: &str, label: &dyn Fn(&str) -> String) -> String {
    let is_word_character = |c: char| c.is_alphanumeric() || "_.-/".contains(c);
    let words = line.split_inclusive(|c| !is_word_character(c));
    let replaced_words = words.map(|word| {
        let id = word.trim_end_matches(|c| !is_word_character(c));
        if is_random_container_id(id) {
            label(id) + &word[id.len()..]
        } else {
            word.to_owned()
        }
    });
    replaced_words.collect()
}

/// Parses the value of `--since`: a span such as `30s`, `10m`, `2h` or `3d`, or the beginning of a
/// time stamp such as `2026-11-28`. Returns a time stamp in the log's format, which can be compared
/// with log lines as text.
pub fn parse_since(text: &str) -> Result<String, String> {
    const SECONDS_PER_UNIT: [(char, i64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let mut units = SECONDS_PER_UNIT.iter();
    let unit = units.find(|(unit, _)| text.ends_with(*unit));
    let span_seconds = unit.and_then(|(unit, seconds)| {
        let count: u32 = text.strip_suffix(*unit)?.parse().ok()?;
        Some(i64::from(count) * seconds)
    });
    if let Some(span_seconds) = span_seconds {
        return Ok(time::format_time_before_now(span_seconds));
    }
    let is_timestamp_character = |c: char| c.is_ascii_digit() || "-:TZ".contains(c);
    if text.starts_with("20") && text.len() >= 10 && text.chars().all(is_timestamp_character) {
        Ok(text.to_owned())
    } else {
        Err(
            "write a span such as 30s, 10m, 2h or 3d, or a time of the log such as \
             2026-11-28T09:30:00Z"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_the_container_that_it_names() {
        let line = "2026-11-22 boathook: container c1: env X=9: no device";
        assert!(contains_container_id(line, "c1"));
        assert!(!contains_container_id(line, "c"));
        assert!(!contains_container_id(
            "boathook: container 4fc1aa: no device",
            "c1"
        ));
    }

    /// The parser reads each line that the formatter writes.
    #[test]
    fn a_line_of_each_level_is_parsed() {
        const TIME: &str = "2026-11-22T10:00:00Z";
        for level in [LogLevel::Error, LogLevel::Warning, LogLevel::Info] {
            for (message, container_id, text) in [
                (
                    "container c1: no device `7`: see x",
                    Some("c1"),
                    "no device `7`: see x",
                ),
                (
                    "container c1 has ended: x",
                    Some("c1"),
                    "container c1 has ended: x",
                ),
                ("container c1", Some("c1"), "container c1"),
                ("cannot read /x: denied", None, "cannot read /x: denied"),
            ] {
                let line = format!("{TIME} {}{message}", level_prefix(level));
                let expected = LogLine {
                    time: TIME,
                    level,
                    container_id,
                    text,
                };
                assert_eq!(LogLine::parse(&line), Some(expected), "{line}");
            }
        }
        for line in [
            "",
            "boathook: x",
            "2026-11-22T10:00:00Z runc: container c1: x",
        ] {
            assert_eq!(LogLine::parse(line), None, "{line}");
        }
    }

    #[test]
    fn only_a_random_id_is_replaced() {
        let id = "0a1b".repeat(16);
        let label = |id: &str| format!("web ({})", &id[..12]);
        for (line, replaced) in [
            (
                format!("boathook: info: container {id}: adds /dev/a"),
                "boathook: info: container web (0a1b0a1b0a1b): adds /dev/a".to_owned(),
            ),
            (format!("{id} ends"), "web (0a1b0a1b0a1b) ends".to_owned()),
            (id.clone(), "web (0a1b0a1b0a1b)".to_owned()),
            (format!("{id}0"), format!("{id}0")),
            (format!("/run/{id}/x"), format!("/run/{id}/x")),
            ("container web: x".to_owned(), "container web: x".to_owned()),
            ("".to_owned(), "".to_owned()),
        ] {
            assert_eq!(replace_random_ids(&line, &label), replaced);
        }
    }

    #[test]
    fn a_span_and_a_time_are_earliest_times() {
        for text in ["30s", "10m", "2h", "3d"] {
            let since = parse_since(text).unwrap();
            assert!(
                since < super::super::format_current_time() && since.len() == 20,
                "{since}"
            );
        }
        assert!(parse_since("3d").unwrap() < parse_since("2h").unwrap());
        for text in ["2026-11-28", "2026-11-28T09:30", "2026-11-28T09:30:00Z"] {
            assert_eq!(parse_since(text).unwrap(), text);
        }
        for text in ["", "m", "-1h", "yesterday", "20", "10 m"] {
            assert!(parse_since(text).is_err(), "{text}");
        }
    }
}
