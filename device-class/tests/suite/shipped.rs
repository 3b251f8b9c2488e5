//! The shipped classes, and the hosts that were recorded for them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use device_class::DeviceClass;
use device_class::host::RecordedHost;
use device_class::load::{self, ClassSource};
use tempfile::TempDir;

/// The crate's directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn source(class: &str) -> ClassSource {
    let file = root().join(format!("classes/{class}.toml"));
    ClassSource::read(&file, &[]).unwrap()
}

/// Returns all shipped classes.
pub(crate) fn sources() -> Vec<ClassSource> {
    load::read_sources(&[copy_class_files().path().to_owned()]).unwrap()
}

/// Reads a class file that may extend a shipped class.
pub(crate) fn source_of_file(file: &Path) -> ClassSource {
    ClassSource::read(file, &[copy_class_files().path().to_owned()]).unwrap()
}

/// Copies the shipped class files to a directory that only this user can change. The loader refuses
/// those of a clone that another user owns, or that was made with the umask 002.
fn copy_class_files() -> TempDir {
    let copies = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(root().join("classes")).unwrap() {
        let entry = entry.unwrap();
        let copy = copies.path().join(entry.file_name());
        fs::write(&copy, fs::read(entry.path()).unwrap()).unwrap();
        fs::set_permissions(copy, Permissions::from_mode(0o644)).unwrap();
    }
    copies
}

pub(crate) fn class(name: &str) -> DeviceClass {
    source(name).parse().unwrap()
}

pub(crate) fn read(testdata: &str) -> String {
    fs::read_to_string(root().join("testdata").join(testdata)).unwrap()
}

/// The text of a recording.
pub(crate) fn recorded(host: &str) -> String {
    read(&format!("{host}/host.txt"))
}

pub(crate) fn host(recorded_host: &str) -> RecordedHost {
    RecordedHost::parse(&recorded(recorded_host)).unwrap()
}
