//! Wrong files in the place of a file of a program. The program must not wait for them, follow them
//! or use them.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

/// The time limit of a program that finds a damaged file, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The content of a link's target, which must stay.
const VICTIM: &str = "the victim's own text";

/// A user who is not root.
const USER: u32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Pipe,
    Socket,
    Directory,
    /// A gibibyte of zeros.
    Overlong,
    /// To a file beside it.
    Link,
    /// To nothing.
    DanglingLink,
    /// The file itself, given to another user.
    ForeignOwner,
    /// The file itself, with the mode 0666.
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

    /// Puts it in the place of the file at `path`, which may be missing.
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

/// Makes a link that leads to the victim from below another root, too.
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
