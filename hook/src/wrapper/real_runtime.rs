//! Finds the real runtime.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use device_class::config::RuntimeConfig;
use runtime_config::program_directories;

use super::WrapperError;

/// The runtimes that are searched for, the first to be preferred.
const NAMES: [&str; 3] = ["runc", "crun", "youki"];

/// The configured runtime; otherwise the first of [`NAMES`] that is found. The
/// engine's PATH is searched before the usual directories, because k3s and
/// others provide their runtime there.
pub(super) fn find(config: &RuntimeConfig) -> Result<PathBuf, WrapperError> {
    let own = FileId::of(Path::new("/proc/self/exe")).ok();
    if let Some(path) = &config.path {
        return match FileId::of(path) {
            Ok(id) if Some(id) == own => Err(WrapperError::Recursion(path.clone())),
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
    first(&directories.collect::<Vec<_>>(), own)
}

/// The first runtime in the directories that is not this program, which may be
/// installed under a runtime's name.
fn first(directories: &[PathBuf], own: Option<FileId>) -> Result<PathBuf, WrapperError> {
    let mut itself = None;
    for name in NAMES {
        for directory in directories {
            let path = directory.join(name);
            match FileId::of(&path) {
                Ok(id) if Some(id) == own => itself = Some(path),
                Ok(_) => return Ok(path),
                Err(_) => {}
            }
        }
    }
    Err(itself.map_or(WrapperError::NoRuntime, WrapperError::Recursion))
}

/// A file's identity, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that a path leads to, if it is a program.
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(io::Error::other("not a program"));
        }
        Ok(FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_first_runtime_by_name_and_then_by_directory() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("boathook-runtime");
        program(&own);
        let [first_dir, second_dir] = ["a", "b"].map(|name| top.path().join(name));
        let directories = [first_dir.clone(), second_dir.clone()];
        let look = || first(&directories, FileId::of(&own).ok());

        assert!(matches!(look(), Err(WrapperError::NoRuntime)));
        fs::create_dir_all(first_dir.join("crun")).unwrap();
        fs::create_dir_all(&second_dir).unwrap();
        fs::write(second_dir.join("runc"), "no program").unwrap();
        assert!(matches!(look(), Err(WrapperError::NoRuntime)));
        program(&first_dir.join("youki"));
        assert_eq!(look().unwrap(), first_dir.join("youki"));
        program(&second_dir.join("crun"));
        assert_eq!(look().unwrap(), second_dir.join("crun"));
    }

    #[test]
    fn this_program_under_a_runtimes_name_is_passed_over() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("boathook-runtime");
        program(&own);
        symlink(&own, top.path().join("runc")).unwrap();
        let look = || first(&[top.path().to_owned()], FileId::of(&own).ok());

        let error = look().unwrap_err();
        assert!(matches!(&error, WrapperError::Recursion(path) if path.ends_with("runc")));
        program(&top.path().join("crun"));
        assert_eq!(look().unwrap(), top.path().join("crun"));
    }
}
