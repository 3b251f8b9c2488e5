//! Selects lines of the node's log by time and by container.

use super::time;

/// Returns whether a log line contains `container_id` as a whole word. A part of a word does not
/// match, because another container's longer id may contain `container_id`.
pub fn contains_container_id(line: &str, container_id: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || "_.-/".contains(c)));
    words.any(|word| word == container_id)
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
