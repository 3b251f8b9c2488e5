//! Reads new lines from the log files while `boathook log --follow` runs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use host_files::printable;

use super::node::{FILE_NAME, PREVIOUS_FILE_NAME};
use crate::oci::open_regular;

/// The position in the log file of one directory. All lines before this position were already
/// returned.
pub(super) struct LogPosition {
    pub(super) directory: PathBuf,
    /// The inode number of the log file that was read last. If the number at the path is different,
    /// that file was renamed. The value is 0 if there was no log file.
    pub(super) inode: u64,
    /// The position in the file, in bytes, where the next line begins.
    pub(super) offset: u64,
}

/// Reads new lines from the node's log and from the log of this user's rootless engine, as
/// `tail -F` does.
pub struct LogFollower(pub(super) Vec<LogPosition>);

impl LogFollower {
    /// Returns the complete lines that were added since the previous call. Does not wait for new
    /// lines.
    pub fn read_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        for position in &mut self.0 {
            position.read_lines(&mut lines)?;
        }
        Ok(lines)
    }
}

impl LogPosition {
    fn read_lines(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let file = match open_regular(&self.directory.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let inode = file.metadata()?.ino();
        if inode != self.inode {
            // The old log file was full and was renamed. Other processes may have added lines to it
            // after the previous call. So these lines are read first.
            let previous_file = open_regular(&self.directory.join(PREVIOUS_FILE_NAME));
            if let Ok(previous_file) = previous_file
                && previous_file.metadata()?.ino() == self.inode
            {
                self.read_from_offset(previous_file, lines)?;
            }
            (self.inode, self.offset) = (inode, 0);
        }
        self.read_from_offset(file, lines)
    }

    fn read_from_offset(&mut self, mut file: File, lines: &mut Vec<String>) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(super::node::MAX_READ_BYTES)
            .read_to_end(&mut bytes)?;
        // If the last line has no newline, another process is still writing it. The next call reads
        // this line.
        let Some(last_newline) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        self.offset += last_newline as u64 + 1;
        let text = String::from_utf8_lossy(&bytes[..last_newline]).into_owned();
        lines.extend(text.lines().map(printable::escape_line));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::super::node::read_lines_with_follower;
    use super::*;

    #[test]
    fn added_lines_are_read_once_also_when_a_new_file_is_started() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("run/boathook");
        let (lines, mut nothing) = read_lines_with_follower(root.path()).unwrap();
        assert!(lines.is_empty());
        assert!(nothing.read_lines().unwrap().is_empty());
        fs::create_dir_all(&directory).unwrap();
        let add = |text: &str| {
            let mut options = OpenOptions::new();
            let file = options
                .create(true)
                .append(true)
                .open(directory.join(FILE_NAME));
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        add("old\n");
        assert_eq!(nothing.read_lines().unwrap(), ["old"]);
        let (lines, mut follower) = read_lines_with_follower(root.path()).unwrap();
        assert_eq!(lines, ["old"]);
        add("between\n");
        assert_eq!(follower.read_lines().unwrap(), ["between"]);
        assert!(follower.read_lines().unwrap().is_empty());
        add("one\ntw");
        assert_eq!(follower.read_lines().unwrap(), ["one"]);
        add("o\nthree\n");
        fs::rename(
            directory.join(FILE_NAME),
            directory.join(PREVIOUS_FILE_NAME),
        )
        .unwrap();
        add("four\n");
        assert_eq!(follower.read_lines().unwrap(), ["two", "three", "four"]);
        assert!(follower.read_lines().unwrap().is_empty());
        // The first lines are read while another process is writing one.
        add("fi");
        let (lines, mut follower) = read_lines_with_follower(root.path()).unwrap();
        assert_eq!(lines, ["old", "between", "one", "two", "three", "four"]);
        assert!(follower.read_lines().unwrap().is_empty());
        add("ve\n");
        assert_eq!(follower.read_lines().unwrap(), ["five"]);
    }
}
