//! Reports notes for the operator in the status of the pod. This process is an init container of
//! that pod.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use daemon::command_line;

/// The file whose content the kubelet adds to the status of a container that has ended. The kubelet
/// mounts the file in each container, and reads at most 4 KiB of it (Kubernetes,
/// `terminationMessagePath`).
const TERMINATION_LOG_PATH: &str = "/dev/termination-log";

/// Writes the notes to the file that the kubelet reads. Outside of a pod this file does not exist
/// and is not created. If the notes cannot be written, a warning is printed and the installation
/// continues.
pub(super) fn report_notes(notes: &[String]) {
    if let Err(error) = write_notes(Path::new(TERMINATION_LOG_PATH), notes) {
        let message = format!("{TERMINATION_LOG_PATH}: cannot be written: {error}");
        command_line::print_warning("boathook-init", &message);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubelet mounts the file in this process's own container"
)]
fn write_notes(path: &Path, notes: &[String]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    match file {
        Ok(mut file) => file.write_all(notes.join("\n").as_bytes()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "the files are in a directory of this test"
    )]
    fn notes_replace_the_earlier_message_and_no_file_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("termination-log");
        let notes = ["one".to_owned(), "two".to_owned()];
        write_notes(&file, &notes).unwrap();
        assert!(!file.exists());

        fs::write(&file, "an earlier message").unwrap();
        write_notes(&file, &notes).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo");
        write_notes(&file, &[]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
    }
}
