//! The format of a recording: a header and events in JSON, one in a line (asciinema's asciicast,
//! version 2).

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The width of the terminal in characters.
pub(super) const WIDTH: usize = 100;

/// Text that appears at a moment.
#[derive(Debug)]
pub(super) struct Event {
    /// The time in seconds since the recording began.
    pub(super) at: f64,
    pub(super) text: String,
}

/// Returns a recording of `seconds` with all its text on one screen.
pub(super) fn encode(title: &str, events: &[Event], seconds: f64) -> String {
    let text: String = events.iter().map(|event| event.text.as_str()).collect();
    let height = screen_lines(&text).len() + 1;
    let header = json!({"version": 2, "width": WIDTH, "height": height, "title": title});
    let mut encoded = format!("{header}\n");
    for event in events {
        let text = event.text.replace('\n', "\r\n");
        let line = json!([round(event.at), "o", text]);
        writeln!(encoded, "{line}").unwrap();
    }
    // The last screen stays until this event, which prints nothing.
    writeln!(encoded, "{}", json!([round(seconds), "o", ""])).unwrap();
    encoded
}

fn round(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// Returns the text of a recording.
pub(super) fn read(path: &Path) -> String {
    let recorded = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}: make recordings", path.display()));
    let events = recorded.lines().skip(1);
    let texts = events.map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event[2].as_str().unwrap().to_owned()
    });
    texts.collect::<String>().replace("\r\n", "\n")
}

/// Returns the lines of the text as the terminal shows them: without colours, and broken at its
/// width.
pub(super) fn screen_lines(text: &str) -> Vec<String> {
    let text = plain(text);
    let lines = text.lines().flat_map(|line| {
        let characters: Vec<char> = line.chars().collect();
        let mut rows: Vec<String> = characters
            .chunks(WIDTH)
            .map(|row| row.iter().collect())
            .collect();
        if rows.is_empty() {
            rows.push(String::new());
        }
        rows
    });
    lines.map(|row| row.trim_end().to_owned()).collect()
}

/// Returns the text without colours (ECMA-48, the control function SGR).
pub(super) fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain
}

/// Returns the words of the text, with another one in place of what each run has anew: ids of
/// containers and process ids. Their lengths determine where a line is wrapped.
pub(super) fn lasting_words(text: &str) -> String {
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let mut after_pid = false;
    let mut replace = |word: &str| {
        let core = word.trim_end_matches(is_separator);
        let is_id = core.len() >= 12 && core.chars().all(|c| c.is_ascii_hexdigit());
        let is_pid = after_pid && core.parse::<u32>().is_ok();
        after_pid = core == "pid";
        let known = match (is_id, is_pid) {
            (true, _) => "ID",
            (_, true) => "PID",
            _ => core,
        };
        format!("{known}{}", &word[core.len()..])
    };
    let words = text.split_whitespace().map(|word| {
        let parts = word.split_inclusive(is_separator);
        parts.map(&mut replace).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the text elements of a picture of termtosvg, line after line.
pub(super) fn words_of_svg(svg: &str) -> String {
    let mut words = String::new();
    for group in svg.split("</g>") {
        for element in group.split("<text ").skip(1) {
            let text = element.split_once('>').map_or("", |(_, rest)| rest);
            words += text.split("</text>").next().unwrap_or_default();
        }
        words.push('\n');
    }
    let entities = [
        ("\u{a0}", " "),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    entities
        .into_iter()
        .fold(words, |text, (entity, sign)| text.replace(entity, sign))
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let events = [
        (0.5, "\u{1b}[1m$ boathook list\u{1b}[0m\n"),
        (1.25, "a\nb\n"),
    ];
    let events = events.map(|(at, text)| Event {
        at,
        text: text.to_owned(),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), encode("a title", &events, 3.0)).unwrap();
    let text = read(file.path());
    assert_eq!(plain(&text), "$ boathook list\na\nb\n");
    let header = fs::read_to_string(file.path()).unwrap();
    assert!(header.starts_with(r#"{"height":4,"title":"a title","version":2,"width":100}"#));
}

#[test]
fn parts_that_each_run_has_anew_are_not_compared() {
    let of = |id: &str, pid: &str| format!("ok container {id}, pid {pid}, 12 of 64 in {id}/x\n");
    let (first, second) = (of("4f1c2a9e0b7d", "4242"), of("a97531eca8642", "17"));
    assert_eq!(lasting_words(&first), lasting_words(&second));
    let other = first.replace("64", "65");
    assert_ne!(lasting_words(&first), lasting_words(&other));
}
