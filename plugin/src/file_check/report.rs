//! The report of `check-files`, which `run` reads: a JSON object from the names of
//! classes to the reasons.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use device_class::HostView;
use device_class::host::RealHost;
use device_class::name::ClassName;

/// The most bytes of a report that are read: a class has one line.
const LIMIT: usize = 1024 * 1024;

/// Why the hook would refuse each container with devices of a class.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FileReport(BTreeMap<String, String>);

impl FileReport {
    /// Reads what [`Self::write`] wrote; `None`: there is no report.
    ///
    /// Another user may write to the directory: a link is followed only within it,
    /// and what is no regular file is not opened.
    ///
    /// # Errors
    /// The file is there but cannot be used.
    pub(crate) fn read(file: &Path) -> io::Result<Option<Self>> {
        let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(io::Error::other("not the path of a file"));
        };
        let read = RealHost::open(directory)
            .and_then(|directory| directory.read(&Path::new("/").join(name), LIMIT));
        match read {
            Ok(bytes) => Ok(Some(FileReport(serde_json::from_slice(&bytes)?))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the file at once. A link that another user put at the name of the temporary
    /// file is not followed.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let temporary = temporary(file);
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // What is left of a process that was killed.
            _ => {}
        }
        File::create_new(&temporary)?.write_all(&serde_json::to_vec(&self.0)?)?;
        fs::rename(&temporary, file)
    }

    /// The reason for a class.
    pub(crate) fn missing(&self, class: &ClassName) -> Option<&str> {
        self.0.get(class.as_str()).map(String::as_str)
    }

    pub(super) fn add(&mut self, class: &ClassName, reason: String) {
        self.0.insert(class.to_string(), reason);
    }
}

fn temporary(file: &Path) -> PathBuf {
    let mut name = OsStr::new(".").to_owned();
    name.push(file.file_name().unwrap_or_default());
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("files.json");
        assert_eq!(FileReport::read(&file).unwrap(), None);

        let mut report = FileReport::default();
        let class = "x".to_owned().try_into().unwrap();
        report.add(&class, "libx.so.1 is missing".to_owned());
        let target = tempfile::NamedTempFile::new().unwrap();
        symlink(target.path(), directory.path().join(".files.json")).unwrap();
        report.write(&file).unwrap();
        assert_eq!(fs::read(target.path()).unwrap(), b"", "a planted link");
        let read = FileReport::read(&file).unwrap().unwrap();
        assert_eq!(read.missing(&class), Some("libx.so.1 is missing"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);

        fs::write(&file, "[1]").unwrap();
        FileReport::read(&file).unwrap_err();
        fs::remove_file(&file).unwrap();
        // It would wait for a writer.
        mkfifo(&file, Mode::S_IRWXU).unwrap();
        FileReport::read(&file).unwrap_err();
        fs::remove_file(&file).unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), r#"{"x": "secret"}"#).unwrap();
        symlink(outside.path(), &file).unwrap();
        assert_eq!(FileReport::read(&file).unwrap(), None);
    }
}
