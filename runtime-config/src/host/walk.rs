//! Resolves a path of the host, and checks who can change the directories on the way.

use std::ffi::OsString;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::stat::fstat;
use rooted_path::{FileKind, LastLink, Resolver, RootDir, Waypoint};

use super::place::Place;
use super::trust;
use crate::error::Error;

/// An open directory, and the name by which it was reached.
#[derive(Debug, Clone)]
pub(super) struct Dir {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) name: OsString,
}

impl Dir {
    pub(super) fn open(path: &Path) -> rooted_path::Result<Self> {
        let root = RootDir::open(path, Resolver::Walk)?.into_handle(path)?;
        Ok(Self {
            fd: Arc::new(root.into_fd()),
            name: path.into(),
        })
    }
}

impl From<Waypoint> for Dir {
    fn from(waypoint: Waypoint) -> Self {
        Self {
            fd: Arc::new(waypoint.handle.into_fd()),
            name: waypoint.name,
        }
    }
}

/// The requirements for the owners and modes of the directories through which a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parents {
    /// Any owner and mode is accepted, because the path is only read.
    Any,
    /// Each directory must belong to root, and not be writable by every user.
    Trusted,
    /// Each directory must belong to root, and be writable neither by every user nor by a group.
    Private,
}

/// The result of resolving a path.
pub(super) enum ResolvedPlace {
    /// The path exists.
    Found(Place),
    /// The path does not exist. The values are the place of its first component that does not exist,
    /// and the names after that component.
    Missing(Place, Vec<OsString>),
}

/// Resolves a path below `root`. Each directory and link on the way must meet the requirements
/// `parents`.
///
/// # Errors
/// Fails if a directory or link does not meet the requirements, if the links form a loop, or if
/// the system refuses.
pub(super) fn resolve(
    root: &Dir,
    path: &Path,
    last: LastLink,
    parents: Parents,
) -> Result<ResolvedPlace, Error> {
    let top = Path::new(&root.name);
    let failed = |error| match error {
        rooted_path::Error::Links { .. } => Error::Other(format!(
            "too many symbolic links in {}; remove the loop",
            path.display()
        )),
        error => {
            let shown = top.join(path.strip_prefix("/").unwrap_or(path));
            Error::io("open", &shown)(error.into())
        }
    };
    if parents != Parents::Any {
        let stat = fstat(&*root.fd).map_err(|errno| Error::io("read", top)(errno.into()))?;
        let problem = trust::find_problem(&stat, parents == Parents::Private);
        check_problem(problem, || top.into())?;
    }
    let mut walk = rooted_path::Walk::new(root.fd.as_fd(), path, last).map_err(failed)?;
    while let Some(step) = walk.step().map_err(failed)? {
        let stat = step.found.handle.stat();
        let problem = match step.found.handle.kind() {
            _ if parents == Parents::Any => None,
            FileKind::Symlink if trust::is_trusted_owner(stat) => None,
            FileKind::Symlink => Some(format!("the link belongs to user {}", stat.st_uid)),
            FileKind::Directory => trust::find_problem(stat, parents == Parents::Private),
            _ if parents == Parents::Private => trust::find_problem(stat, true),
            _ => None,
        };
        check_problem(problem, || step.path(top))?;
    }
    let end = walk.finish().map_err(failed)?;
    let mut dirs: Vec<Dir> = iter::once(root.clone())
        .chain(end.trail.into_iter().map(Dir::from))
        .collect();
    let mut missing = end.missing.into_iter();
    Ok(match missing.next() {
        Some(name) => ResolvedPlace::Missing(Place::new(dirs, name), missing.collect()),
        None => ResolvedPlace::Found(match dirs.pop() {
            Some(last) if !dirs.is_empty() => Place::new(dirs, last.name),
            top => Place::new(top.into_iter().collect(), ".".into()),
        }),
    })
}

fn check_problem(problem: Option<String>, path: impl FnOnce() -> PathBuf) -> Result<(), Error> {
    problem.map_or(Ok(()), |problem| {
        Err(Error::Other(format!(
            "{}: {problem}, and so could replace what root runs from there; make it root's own \
             and writable by root alone (chown root:root, chmod go-w)",
            path().display()
        )))
    })
}
