//! Selects lines of the node's log by their time and by the container that they name.

use super::time;

/// Returns whether a line of the log contains the container id `id` as a whole word. A part of a
/// word does not count, because the id of another container may contain the same letters.
pub(crate) fn names_container(line: &str, id: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || "_.-/".contains(c)));
    words.any(|word| word == id)
}

/// Parses the value of `--since`: a span such as `30s`, `10m`, `2h` or `3d`, or the beginning of a
/// time in the format of the log, such as `2026-11-28`. Returns the time in the format of the log,
/// so that a comparison of texts finds the lines that are not older.
pub(crate) fn parse_since(text: &str) -> Result<String, String> {
    const SECONDS_PER_UNIT: [(char, i64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let mut units = SECONDS_PER_UNIT.iter();
    let unit = units.find(|(unit, _)| text.ends_with(*unit));
    let span = unit.and_then(|(unit, seconds)| {
        let count: u32 = text.strip_suffix(*unit)?.parse().ok()?;
        Some(i64::from(count) * seconds)
    });
    if let Some(span) = span {
        return Ok(time::format_time_ago(span));
    }
    let is_time_character = |c: char| c.is_ascii_digit() || "-:TZ".contains(c);
    if text.starts_with("20") && text.len() >= 10 && text.chars().all(is_time_character) {
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
        assert!(names_container(line, "c1"));
        assert!(!names_container(line, "c"));
        assert!(!names_container(
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
