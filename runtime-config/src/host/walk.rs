//! Resolves a path of the host, and checks who can change the directories of the path.

use std::ffi::OsString;
use std::iter;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use host_files::rooted_path;
use host_files::rooted_path::{FileKind, TrailingSymlink};
use nix::sys::stat::fstat;

use super::entry::HostEntry;
use super::open_dir::OpenDir;
use super::trust;
use crate::error::Error;

/// The requirements for the owner and the mode of the directories on a path. Where a requirement
/// names root, the user of this process is accepted as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryPolicy {
    /// Any owner and mode is accepted, because the path is only read.
    Any,
    /// Each directory must belong to root, and not every user may have write access to it. A group
    /// may have write access.
    Trusted,
    /// Each directory and the file at the end of the path must belong to root. Neither a group,
    /// other than root's and that of this process, nor every user may have write access to them.
    Private,
}

pub(super) enum ResolvedEntry {
    Found(HostEntry),
    /// The path does not exist. The values are the entry of its first missing component, and the
    /// names after this component.
    Missing(HostEntry, Vec<OsString>),
}

/// Resolves a path below `root`. Each directory and symbolic link on the path must meet the
/// requirements of `policy`.
///
/// # Errors
/// Fails if a directory or link does not meet the requirements, if the links form a loop, or if
/// the system refuses.
pub(super) fn resolve(
    root: &OpenDir,
    path: &Path,
    trailing_symlink: TrailingSymlink,
    policy: DirectoryPolicy,
) -> Result<ResolvedEntry, Error> {
    let root_path = Path::new(&root.name);
    let to_error = |error| match error {
        rooted_path::Error::TooManyLinks { .. } => Error::Other(format!(
            "too many symbolic links in {}; remove the loop",
            path.display()
        )),
        error => {
            let display_path = root_path.join(path.strip_prefix("/").unwrap_or(path));
            Error::io("open", &display_path)(error.into())
        }
    };
    if policy != DirectoryPolicy::Any {
        let stat = fstat(&*root.fd).map_err(|errno| Error::io("read", root_path)(errno.into()))?;
        let problem = trust::find_untrusted_writer(&stat, policy == DirectoryPolicy::Private);
        refuse_problem(problem, || root_path.into())?;
    }
    let mut walk =
        rooted_path::Walk::new(root.fd.as_fd(), path, trailing_symlink).map_err(to_error)?;
    while let Some(step) = walk.step().map_err(to_error)? {
        let stat = step.file.handle.stat();
        let problem = match step.file.handle.kind() {
            _ if policy == DirectoryPolicy::Any => None,
            FileKind::Symlink if trust::is_trusted_owner(stat) => None,
            FileKind::Symlink => Some(format!("the link belongs to user {}", stat.st_uid)),
            FileKind::Directory => {
                trust::find_untrusted_writer(stat, policy == DirectoryPolicy::Private)
            }
            _ if policy == DirectoryPolicy::Private => trust::find_untrusted_writer(stat, true),
            _ => None,
        };
        refuse_problem(problem, || step.path(root_path))?;
    }
    let resolved = walk.finish().map_err(to_error)?;
    let mut dirs: Vec<OpenDir> = iter::once(root.clone())
        .chain(resolved.opened_components.into_iter().map(OpenDir::from))
        .collect();
    let mut missing_names = resolved.missing_names.into_iter();
    Ok(match missing_names.next() {
        Some(name) => ResolvedEntry::Missing(HostEntry::new(dirs, name), missing_names.collect()),
        None => ResolvedEntry::Found(match dirs.pop() {
            Some(dir) if !dirs.is_empty() => HostEntry::new(dirs, dir.name),
            root => HostEntry::new(root.into_iter().collect(), ".".into()),
        }),
    })
}

/// Returns an error if a directory or link has a problem. `get_path` returns the path of the
/// directory or link for the message.
fn refuse_problem(
    problem: Option<String>,
    get_path: impl FnOnce() -> PathBuf,
) -> Result<(), Error> {
    problem.map_or(Ok(()), |problem| {
        Err(Error::Other(format!(
            "{}: {problem}, and so could replace what root runs from there; make it root's own \
             and writable by root alone (chown root:root, chmod go-w)",
            get_path().display()
        )))
    })
}
