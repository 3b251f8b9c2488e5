//! Finds the programs of a driver that report facts and health: at the path that the class names,
//! or in the directories in which the programs for containers are searched.

use std::path::{Path, PathBuf};

use crate::class::{DeviceClass, PathTemplate};
use crate::host::{Entry, HostView};
use crate::template::Attributes;

/// A program of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProgram {
    pub path: PathBuf,
    /// The directories with libraries of the program that are not in the host's ld.so.cache. The
    /// list is empty for a program at the path in the class file. A program elsewhere belongs to a
    /// driver with a directory of its own.
    pub library_path: Vec<PathBuf>,
}

/// Finds a program by the path that a class names. The path itself is returned if the program is
/// there or cannot be found anywhere.
pub fn find_host_program(class: &DeviceClass, path: &Path, host: &dyn HostView) -> HostProgram {
    let is_program = |path: &Path| {
        let place = host.place(path);
        place.is_ok_and(|place| place.is_some_and(|place| place.entry == Entry::File))
    };
    let at_path = HostProgram {
        path: path.to_owned(),
        library_path: Vec::new(),
    };
    // If the look-up of the path fails, the program may be there. Only a certain absence lets the
    // other directories be searched.
    let is_absent = matches!(host.entry(path), Ok(None));
    let (true, Some(name)) = (is_absent, path.file_name()) else {
        return at_path;
    };
    let directories = fill(&class.spec.program_directories).into_iter();
    let candidates = directories.map(|directory| directory.join(name));
    let candidates: Vec<PathBuf> = candidates.filter(|path| is_program(path)).collect();
    // A script may be a wrapper for something that only its own environment has.
    let binary = candidates.iter().find(|path| !host.is_script(path));
    let Some(found) = binary.or(candidates.first()) else {
        return at_path;
    };
    let mut library_path = fill(&class.spec.library_directories);
    library_path.retain(|directory| matches!(host.entry(directory), Ok(Some(Entry::Directory))));
    HostProgram {
        path: found.clone(),
        library_path,
    }
}

/// Fills in the templates of directories. A template with an attribute is left out, because the
/// programs are run before the attributes of the host are known.
fn fill(directories: &[PathTemplate]) -> Vec<PathBuf> {
    let none = Attributes::new();
    let filled = directories.iter().map(|directory| directory.fill(&none));
    filled.filter_map(Result::ok).collect()
}
