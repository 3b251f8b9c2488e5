//! Reads the lines that are added to the node's log while somebody waits for them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::node::{NAME, PREVIOUS, list_directories};
use crate::oci::open_regular;

/// A log file, and how far it was read.
struct Position {
    directory: PathBuf,
    /// The inode of the file. 0 means that there was no file.
    inode: u64,
    /// The number of bytes that were read.
    read: u64,
}

/// The logs of the node and of the user, from the end that they had at the beginning.
pub(crate) struct LogFollower(Vec<Position>);

impl LogFollower {
    pub(crate) fn start(root: &Path) -> Self {
        let directories = list_directories(root).into_iter();
        let positions = directories.map(|directory| {
            let named = open_regular(&directory.join(NAME)).and_then(|file| file.metadata());
            let (inode, read) = named.map_or((0, 0), |named| (named.ino(), named.len()));
            Position {
                directory,
                inode,
                read,
            }
        });
        LogFollower(positions.collect())
    }

    /// Returns the whole lines that were added since the last call.
    pub(crate) fn read_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        for position in &mut self.0 {
            position.read_lines(&mut lines)?;
        }
        Ok(lines)
    }
}

impl Position {
    fn read_lines(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let file = match open_regular(&self.directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let inode = file.metadata()?.ino();
        if inode != self.inode {
            // A full log was renamed, and may have got lines before that.
            let previous = open_regular(&self.directory.join(PREVIOUS));
            if let Ok(previous) = previous
                && previous.metadata()?.ino() == self.inode
            {
                self.read_rest(previous, lines)?;
            }
            (self.inode, self.read) = (inode, 0);
        }
        self.read_rest(file, lines)
    }

    fn read_rest(&mut self, mut file: File, lines: &mut Vec<String>) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(super::node::MAX_READ).read_to_end(&mut bytes)?;
        // The end of a line may not have been written yet.
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        self.read += end as u64 + 1;
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        lines.extend(text.lines().map(printable::line));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    #[test]
    fn added_lines_are_read_once_also_when_a_new_file_is_started() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("run/boathook");
        let mut nothing = LogFollower::start(root.path());
        assert!(nothing.read_lines().unwrap().is_empty());
        fs::create_dir_all(&directory).unwrap();
        let add = |text: &str| {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).open(directory.join(NAME));
            file.unwrap().write_all(text.as_bytes()).unwrap();
        };
        add("old\n");
        assert_eq!(nothing.read_lines().unwrap(), ["old"]);
        let mut follower = LogFollower::start(root.path());
        assert!(follower.read_lines().unwrap().is_empty());
        add("one\ntw");
        assert_eq!(follower.read_lines().unwrap(), ["one"]);
        add("o\nthree\n");
        fs::rename(directory.join(NAME), directory.join(PREVIOUS)).unwrap();
        add("four\n");
        assert_eq!(follower.read_lines().unwrap(), ["two", "three", "four"]);
        assert!(follower.read_lines().unwrap().is_empty());
    }
}
