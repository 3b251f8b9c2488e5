//! Prints to stdout, and escapes control characters of foreign texts for terminals.

use std::io::{self, ErrorKind, Write};

use printable::{Form, Printable};
use serde::Serialize;

/// Prints lines. If the reader has closed the output, as `head` does, that is not an error.
pub fn print(lines: &str) -> io::Result<()> {
    write(lines, Form::Lines)
}

/// Prints a JSON document, like [`print()`].
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let document = serde_json::to_string_pretty(value)?;
    write(&(document + "\n"), Form::Json)
}

fn write(text: &str, form: Form) -> io::Result<()> {
    match Printable::new(io::stdout(), form).write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write the output: {error}"),
        )),
        Ok(()) => Ok(()),
    }
}
