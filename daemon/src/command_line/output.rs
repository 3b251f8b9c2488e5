//! Prints text and JSON documents on stdout. Control characters are escaped. Otherwise a text from
//! an image or a process could control the terminal.

use std::io::{self, ErrorKind, Write};

use host_files::printable::{EscapingWriter, OutputFormat};
use serde::Serialize;

/// Prints lines on stdout. A closed pipe is not an error: readers such as `head` close the pipe
/// when they have read enough.
pub fn print_lines(lines: &str) -> io::Result<()> {
    write_escaped(lines, OutputFormat::Lines)
}

/// Prints a value as a JSON document on stdout. As in [`print_lines`], a closed pipe is not an
/// error.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let document = serde_json::to_string_pretty(value)?;
    write_escaped(&(document + "\n"), OutputFormat::Json)
}

fn write_escaped(text: &str, form: OutputFormat) -> io::Result<()> {
    match EscapingWriter::new(io::stdout(), form).write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write the output: {error}"),
        )),
        Ok(()) => Ok(()),
    }
}
