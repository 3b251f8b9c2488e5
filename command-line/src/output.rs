//! Output on stdout.

use std::io::{self, ErrorKind, Write};

/// Prints text. It is no failure if the reader has closed the output, as `head` does
/// when it has read enough.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot write the output: {error}"),
        )),
        Ok(()) => Ok(()),
    }
}
