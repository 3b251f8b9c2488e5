//! Prints text and JSON documents on stdout. Control characters are escaped, because a text of an
//! image or a process could otherwise control the terminal.

use std::io::{self, ErrorKind, Write};

use printable::{Form, Printable};
use serde::Serialize;

/// Prints lines on stdout. It is not an error if the reader has closed the output, as `head` does.
pub fn print(lines: &str) -> io::Result<()> {
    write(lines, Form::Lines)
}

/// Prints a value as a JSON document on stdout, with the same rule for closed outputs as [`print()`].
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
