//! Resolves a path under a root by directory handles, one name at a time.
//!
//! `openat2(RESOLVE_IN_ROOT)` would do the same in one call, but shows only
//! where a path ends; here each directory on the way is checked, and `..`
//! returns to a handle that is held, so that a directory which is moved
//! meanwhile leads nowhere else.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::place::Place;
use super::{kind, trust};
use crate::error::Error;

/// The kernel's own limit (`MAXSYMLINKS`, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A directory that is held open, and the name by which it was reached.
#[derive(Debug, Clone)]
pub(super) struct Dir {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) name: OsString,
}

impl Dir {
    pub(super) fn open(path: &Path) -> nix::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self {
            fd: Arc::new(fd),
            name: path.into(),
        })
    }
}

/// What is done with a link at the very end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Keep,
}

/// Which directories may be on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parents {
    /// Any: the path is only read.
    Any,
    /// Root's, and not writable by everyone.
    Trusted,
    /// Root's, and not writable by a group either.
    Private,
}

/// Where a path leads.
pub(super) struct Walk {
    /// The place, or the first one on the way that does not exist.
    pub(super) place: Place,
    /// Whether something is there.
    exists: bool,
    /// The names that follow a place that does not exist.
    pub(super) missing: Vec<OsString>,
}

impl Walk {
    pub(super) fn found(&self) -> Option<&Place> {
        self.exists.then_some(&self.place)
    }
}

pub(super) fn resolve(
    root: &Dir,
    path: &Path,
    last: LastLink,
    parents: Parents,
) -> Result<Walk, Error> {
    let mut dirs = vec![root.clone()];
    check(&dirs, parents)?;
    let mut todo = reversed(path);
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == ".." {
            if dirs.len() > 1 {
                dirs.pop();
            }
            continue;
        }
        let place = Place::new(dirs.clone(), name);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let io = |errno: Errno| Error::io("open", &place.shown())(errno.into());
        let fd = match openat(place.dir(), place.name(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => {
                todo.reverse();
                return Ok(Walk {
                    place,
                    exists: false,
                    missing: todo,
                });
            }
            Err(errno) => return Err(io(errno)),
        };
        let stat = fstat(&fd).map_err(io)?;
        match kind(&stat) {
            SFlag::S_IFLNK if !(todo.is_empty() && last == LastLink::Keep) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Error::LinkLoop { path: path.into() });
                }
                if parents != Parents::Any && !trust::is_trusted_owner(&stat) {
                    let problem = format!("the link belongs to user {}", stat.st_uid);
                    let path = place.shown();
                    return Err(Error::Untrusted { path, problem });
                }
                let target = PathBuf::from(readlinkat(&fd, "").map_err(io)?);
                if target.is_absolute() {
                    dirs.truncate(1);
                }
                todo.extend(reversed(&target));
            }
            SFlag::S_IFDIR => {
                dirs.push(Dir {
                    fd: Arc::new(fd),
                    name: place.name().to_owned(),
                });
                check(&dirs, parents)?;
            }
            _ if todo.is_empty() => return Ok(found(place)),
            // A file where a directory should be: nothing can be below it.
            _ => {
                todo.reverse();
                return Ok(Walk {
                    place,
                    exists: false,
                    missing: todo,
                });
            }
        }
    }
    // The path ended in a directory.
    let place = match dirs.pop() {
        Some(dir) if !dirs.is_empty() => Place::new(dirs, dir.name),
        dir => Place::new(dir.into_iter().collect(), ".".into()),
    };
    Ok(found(place))
}

fn found(place: Place) -> Walk {
    Walk {
        place,
        exists: true,
        missing: Vec::new(),
    }
}

/// Checks the innermost directory.
fn check(dirs: &[Dir], parents: Parents) -> Result<(), Error> {
    let (Some(dir), true) = (dirs.last(), parents != Parents::Any) else {
        return Ok(());
    };
    let path = || dirs.iter().map(|dir| &dir.name).collect::<PathBuf>();
    let stat = fstat(&*dir.fd).map_err(|e| Error::io("read", &path())(io::Error::from(e)))?;
    match trust::problem(&stat, parents == Parents::Private) {
        None => Ok(()),
        Some(problem) => Err(Error::Untrusted {
            path: path(),
            problem,
        }),
    }
}

/// A path's names in reverse, ready to be taken one by one from the end.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}
