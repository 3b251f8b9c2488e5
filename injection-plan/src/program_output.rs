//! What a program of the host prints, read while it runs.

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// So many pieces are read at a time: a program may print without end.
const PIECES: usize = 64;

/// The length of a piece.
const PIECE: usize = 16 * 1024;

/// The beginning of a program's output. The rest is read and dropped, so that the
/// program is not blocked, and takes no memory.
#[derive(Debug)]
pub struct ProgramOutput<R> {
    pipe: R,
    limit: usize,
    text: Vec<u8>,
}

impl<R: Read + AsFd> ProgramOutput<R> {
    /// The first `limit` bytes of what comes from a pipe.
    pub fn new(pipe: R, limit: usize) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(ProgramOutput {
            pipe,
            limit,
            text: Vec::new(),
        })
    }

    /// Reads what there is now. An error is the end of the output.
    pub fn read(&mut self) {
        let mut piece = [0; PIECE];
        for _ in 0..PIECES {
            let Ok(length @ 1..) = self.pipe.read(&mut piece) else {
                return;
            };
            let room = self.limit - self.text.len();
            self.text.extend(&piece[..length.min(room)]);
        }
    }

    /// What was read, up to the limit.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_beginning_is_kept_and_the_rest_does_not_block_the_writer() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut output = ProgramOutput::new(reader, 5).unwrap();
        output.read();
        assert_eq!(output.text(), "");
        for _ in 0..40 {
            writer.write_all(&[b'x'; 60_000]).unwrap();
            output.read();
            assert!(output.text.capacity() < PIECE);
        }
        drop(writer);
        output.read();
        assert_eq!(output.text(), "xxxxx");
    }
}
