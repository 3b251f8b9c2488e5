//! Replaces the file of a program by files that it must not use. The program must neither wait for
//! them nor follow them.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

/// The time limit of a program that finds such a file. It allows for a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The content of the file to which links lead. It must not change.
const VICTIM: &str = "the victim's own text";

/// The uid of a user other than root.
const USER: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Pipe,
    Socket,
    Directory,
    /// A file with a gibibyte of zeros.
    Overlong,
    /// A link to a file in the same directory.
    Link,
    /// A link without a target.
    DanglingLink,
    /// The file itself, which belongs to another user.
    ForeignOwner,
    /// The file itself, which has the mode 0666.
    Writable,
}

impl Damage {
    /// Returns the kinds that a test can create. Only root can change the owner of a file.
    pub fn kinds() -> Vec<Self> {
        let mut kinds = vec![
            Damage::Pipe,
            Damage::Socket,
            Damage::Directory,
            Damage::Overlong,
            Damage::Link,
            Damage::DanglingLink,
            Damage::Writable,
        ];
        if geteuid().is_root() {
            kinds.push(Damage::ForeignOwner);
        }
        kinds
    }

    pub fn is_link(self) -> bool {
        matches!(self, Damage::Link | Damage::DanglingLink)
    }

    /// Replaces the file at `path`, which need not exist.
    pub fn put(self, path: &Path) -> io::Result<()> {
        if matches!(self, Damage::ForeignOwner | Damage::Writable) {
            if !path.is_file() {
                fs::write(path, VICTIM)?;
            }
            return match self {
                Damage::Writable => fs::set_permissions(path, Permissions::from_mode(0o666)),
                _ => chown(path, Some(USER), Some(USER)),
            };
        }
        remove(path)?;
        match self {
            Damage::Pipe => Ok(mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?),
            Damage::Socket => UnixListener::bind(path).map(drop),
            Damage::Directory => fs::create_dir(path),
            Damage::Overlong => File::create(path)?.set_len(1 << 30),
            Damage::Link => {
                fs::write(victim(path), VICTIM)?;
                link(path)
            }
            _ => link(path),
        }
    }

    /// Returns whether the target of the link at `path` is unchanged. The link may have been
    /// replaced.
    pub fn spares_victim(self, path: &Path) -> bool {
        match self {
            Damage::Link => fs::read_to_string(victim(path)).is_ok_and(|text| text == VICTIM),
            _ => !victim(path).exists(),
        }
    }
}

fn victim(path: &Path) -> PathBuf {
    path.with_extension("victim")
}

/// Creates a link at `path` to the victim. The link is relative, so that it also leads there if the
/// directory is mounted elsewhere.
fn link(path: &Path) -> io::Result<()> {
    let name = victim(path).file_name().map(PathBuf::from);
    symlink(name.unwrap_or_default(), path)
}

/// Removes whatever is at `path`.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    }
}
