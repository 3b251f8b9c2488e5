//! Finds programs of a driver on the host, at the path in the class file or in
//! `program_directories`. The programs report the driver's properties and the health of devices.

use std::path::{Path, PathBuf};

use crate::class::{DeviceClass, PathTemplate};
use crate::driver_properties::DriverProperties;
use crate::host::{Entry, HostView};
use crate::template::Attributes;

/// A program of a driver, as it was found on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProgram {
    pub path: PathBuf,
    /// Directories with libraries that the program needs and the host's ld.so.cache does not list.
    /// The list is empty if the program is at the path in the class file. Elsewhere the program
    /// belongs to a driver that is installed in a directory of its own, together with its
    /// libraries.
    pub library_path: Vec<PathBuf>,
}

/// Returns a note for the administrator if the program that reports a class's driver properties is
/// due: it has not run since the boot, or its last run was more than a day ago. Returns `None` if
/// the host does not have the program.
pub fn describe_due_run(class: &DeviceClass, host: &dyn HostView) -> Option<String> {
    let find_program = |path: &Path| find_host_program(class, path, host).path;
    DriverProperties::describe_due_run(class, find_program, host)
}

/// Finds a program of a driver: first at the path in the class file, and then by its name in
/// `program_directories`. If the program is in none of these places, returns the path in the class
/// file.
pub fn find_host_program(class: &DeviceClass, path: &Path, host: &dyn HostView) -> HostProgram {
    let is_program = |path: &Path| {
        let host_file = host.find_trusted_file(path);
        host_file.is_ok_and(|host_file| {
            host_file.is_some_and(|host_file| host_file.entry == Entry::File)
        })
    };
    let program_at_path = HostProgram {
        path: path.to_owned(),
        library_path: Vec::new(),
    };
    // If the look-up of the path fails, the program may still be there. So the other directories
    // are searched only if the path certainly does not exist.
    let is_absent = matches!(host.entry(path), Ok(None));
    let (true, Some(name)) = (is_absent, path.file_name()) else {
        return program_at_path;
    };
    let directories = fill_directories(&class.spec.program_directories).into_iter();
    let candidates = directories.map(|directory| directory.join(name));
    let candidates: Vec<PathBuf> = candidates.filter(|path| is_program(path)).collect();
    // A script may be a wrapper that works only in the driver's container. So a program that is not
    // a script is preferred.
    let native_program = candidates.iter().find(|path| !host.is_script(path));
    let Some(program_path) = native_program.or(candidates.first()) else {
        return program_at_path;
    };
    let mut library_path = fill_directories(&class.spec.library_directories);
    library_path.retain(|directory| matches!(host.entry(directory), Ok(Some(Entry::Directory))));
    HostProgram {
        path: program_path.clone(),
        library_path,
    }
}

/// Fills in templates for directories. Leaves out a template that uses an attribute, because the
/// programs are run before the host's attributes are known.
fn fill_directories(directories: &[PathTemplate]) -> Vec<PathBuf> {
    let no_attributes = Attributes::new();
    let paths = directories
        .iter()
        .map(|directory| directory.fill(&no_attributes));
    paths.filter_map(Result::ok).collect()
}
