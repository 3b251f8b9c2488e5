//! Finds the OCI runtime that `boathook-runtime` executes, such as runc, crun or youki.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use device_class::config::RuntimeConfig;
use nix::sys::stat::stat;
use runtime_config::{OCI_RUNTIME_NAMES, program_directories};

use super::WrapperError;
use crate::container::Identity;

/// Returns the path of the runtime that config.toml sets. Without this setting, returns the first
/// runtime in [`OCI_RUNTIME_NAMES`] that exists. The PATH is searched before the usual directories,
/// because engines such as k3s add the directory of their own runtime to the PATH.
pub fn find_real_runtime(config: &RuntimeConfig) -> Result<PathBuf, WrapperError> {
    let program_identity = read_program_identity(Path::new("/proc/self/exe")).ok();
    if let Some(path) = &config.path {
        return match read_program_identity(path) {
            Ok(id) if Some(id) == program_identity => Err(WrapperError::Recursion(path.clone())),
            Ok(_) => Ok(path.clone()),
            Err(error) => Err(WrapperError::Runtime {
                path: path.clone(),
                problem: format!("cannot be run: {error}"),
            }),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .chain(program_directories().map(PathBuf::from));
    find_runtime_in_directories(&directories.collect::<Vec<_>>(), program_identity)
}

/// Returns the path of the first runtime in `directories`. Skips a file with the identity
/// `program_identity`, which is this program itself: an administrator may install it under the name
/// of a runtime.
fn find_runtime_in_directories(
    directories: &[PathBuf],
    program_identity: Option<Identity>,
) -> Result<PathBuf, WrapperError> {
    let mut own_program_path = None;
    for name in OCI_RUNTIME_NAMES {
        for directory in directories {
            let path = directory.join(name);
            match read_program_identity(&path) {
                Ok(id) if Some(id) == program_identity => own_program_path = Some(path),
                Ok(_) => return Ok(path),
                Err(_) => {}
            }
        }
    }
    Err(own_program_path.map_or(WrapperError::NoRuntime, WrapperError::Recursion))
}

/// Returns the identity of the program at `path`: the device number of its file system and its
/// inode number. Fails if the file is not executable.
fn read_program_identity(path: &Path) -> io::Result<Identity> {
    let metadata = stat(path)?;
    let is_file = metadata.st_mode & libc::S_IFMT == libc::S_IFREG;
    if is_file && metadata.st_mode & 0o111 != 0 {
        Ok(Identity::from_stat(&metadata))
    } else {
        Err(io::Error::other("not a program"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn make_program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_first_runtime_by_name_and_then_by_directory() {
        let top = tempfile::tempdir().unwrap();
        let this_program = top.path().join("boathook-runtime");
        make_program(&this_program);
        let [first_dir, second_dir] = ["a", "b"].map(|name| top.path().join(name));
        let directories = [first_dir.clone(), second_dir.clone()];
        let look =
            || find_runtime_in_directories(&directories, read_program_identity(&this_program).ok());

        assert!(matches!(look(), Err(WrapperError::NoRuntime)));
        fs::create_dir_all(first_dir.join("crun")).unwrap();
        fs::create_dir_all(&second_dir).unwrap();
        fs::write(second_dir.join("runc"), "no program").unwrap();
        assert!(matches!(look(), Err(WrapperError::NoRuntime)));
        make_program(&first_dir.join("youki"));
        assert_eq!(look().unwrap(), first_dir.join("youki"));
        make_program(&second_dir.join("crun"));
        assert_eq!(look().unwrap(), second_dir.join("crun"));
    }

    #[test]
    fn this_program_under_a_runtimes_name_is_passed_over() {
        let top = tempfile::tempdir().unwrap();
        let this_program = top.path().join("boathook-runtime");
        make_program(&this_program);
        symlink(&this_program, top.path().join("runc")).unwrap();
        let look = || {
            find_runtime_in_directories(
                &[top.path().to_owned()],
                read_program_identity(&this_program).ok(),
            )
        };

        let error = look().unwrap_err();
        assert!(matches!(&error, WrapperError::Recursion(path) if path.ends_with("runc")));
        make_program(&top.path().join("crun"));
        assert_eq!(look().unwrap(), top.path().join("crun"));
    }
}
