//! Compares the resolvers with the library `pathrs` on random trees of directories, files and
//! symbolic links. Both must find the same files, and create the same missing directories.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::openat;
use nix::sys::stat::{Mode, fstat, mkdirat};
use pathrs::error::{Error as PathrsError, ErrorKind};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tempfile::TempDir;

use crate::rooted_path::{
    Error, FileKind, FileName, HANDLE_NOFOLLOW_FLAGS, Handle, Resolver, RootDir, TrailingSymlink,
    Walk,
};

const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Walk];

#[derive(Clone, Debug)]
enum Node {
    Directory,
    File,
    Link(String),
}

/// An entry of the tree: the index of a directory that was created before, the name of the entry
/// in the directory, and the file.
type Entry = (usize, &'static str, Node);

/// The result of a look-up: the inode number of the file, or the error.
#[derive(Debug, PartialEq)]
enum Outcome {
    Inode(u64),
    Failed(Errno),
}

fn path() -> impl Strategy<Value = String> {
    let parts = vec(select(vec!["a", "b", "c", ".", "..", ""]), 1..7);
    let path = (any::<bool>(), parts).prop_map(|(absolute, parts)| {
        let root = if absolute { "/" } else { "" };
        format!("{root}{}", parts.join("/"))
    });
    path.prop_filter("empty", |path| !path.is_empty())
}

fn entry() -> impl Strategy<Value = Entry> {
    let node = prop_oneof![
        3 => Just(Node::Directory),
        1 => Just(Node::File),
        4 => path().prop_map(Node::Link),
    ];
    (0..8_usize, select(vec!["a", "b", "c"]), node)
}

/// Creates the tree in a new directory. No symbolic link is followed.
fn create_tree(entries: &[Entry]) -> TempDir {
    let base = tempfile::tempdir().unwrap();
    let mut directories = vec![base.path().join("root")];
    fs::create_dir(&directories[0]).unwrap();
    for (parent, name, node) in entries {
        let path = directories[parent % directories.len()].join(name);
        match node {
            _ if path.symlink_metadata().is_ok() => {}
            Node::Directory => {
                fs::create_dir(&path).unwrap();
                directories.push(path);
            }
            Node::File => fs::write(path, "").unwrap(),
            Node::Link(text) => symlink(text, path).unwrap(),
        }
    }
    base
}

fn look_up(root: &RootDir, path: &str) -> Outcome {
    match root.lookup(Path::new(path)) {
        Ok(Some(found)) => Outcome::Inode(found.stat().st_ino),
        Ok(None) => Outcome::Failed(Errno::ENOENT),
        Err(error) => Outcome::Failed(error.errno()),
    }
}

/// Creates the missing directories of a path, as a caller of the walk would.
fn create(root: &Path, path: &str, mode: Mode) -> crate::rooted_path::Result<()> {
    let root = RootDir::open(root, Resolver::Walk)?;
    let end = Walk::new(root.as_fd(), path.as_ref(), TrailingSymlink::Follow)?.finish()?;
    let failed = |errno| Error::system("make", path, errno);
    if end.is_dangling {
        return Err(failed(Errno::ENOENT));
    }
    let names: Vec<_> = end
        .missing_names
        .iter()
        .map(FileName::new)
        .collect::<Result<_, _>>()?;
    let mut here = match end.opened_components.into_iter().next_back() {
        Some(last) => last.handle,
        None => root.handle()?,
    };
    if here.kind() != FileKind::Directory {
        return Err(failed(Errno::ENOTDIR));
    }
    for name in names {
        mkdirat(&here, name.as_os_str(), mode).map_err(failed)?;
        let made = openat(
            &here,
            name.as_os_str(),
            HANDLE_NOFOLLOW_FLAGS,
            Mode::empty(),
        );
        here = Handle::new(made.map_err(failed)?, path.as_ref())?;
    }
    Ok(())
}

/// Repeats a call of `pathrs` as long as it fails with EAGAIN. A rename anywhere on the system
/// can prevent the resolution of `..` (openat2(2)), and `pathrs` gives up after some attempts.
fn retry<T>(call: impl Fn() -> Result<T, PathrsError>) -> Result<T, PathrsError> {
    loop {
        let result = call();
        let is_temporary = |error: &PathrsError| match error.kind() {
            ErrorKind::OsError(Some(errno)) => Errno::from_raw(errno) == Errno::EAGAIN,
            _ => false,
        };
        if !result.as_ref().is_err_and(is_temporary) {
            return result;
        }
    }
}

fn look_up_with_pathrs(root: &pathrs::Root, path: &str) -> Outcome {
    match retry(|| root.resolve(path)) {
        Ok(found) => Outcome::Inode(fstat(found).unwrap().st_ino),
        Err(error) => match error.kind() {
            ErrorKind::OsError(Some(errno)) => Outcome::Failed(Errno::from_raw(errno)),
            other => panic!("{path}: {other:?}: {error}"),
        },
    }
}

/// Adds the paths of all files below `directory` to `found`, relative to `base`.
fn list_files(directory: &Path, found: &mut Vec<PathBuf>, base: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.strip_prefix(base).unwrap().to_owned());
        if path.symlink_metadata().unwrap().is_dir() {
            list_files(&path, found, base);
        }
    }
    found.sort();
}

/// Creates the directory `path` in a tree, and returns all files of the tree afterwards.
/// Returns `None` if the directory could not be created.
fn files_after<E>(
    base: &TempDir,
    create: impl FnOnce(&Path) -> Result<(), E>,
) -> Option<Vec<PathBuf>> {
    let created = create(&base.path().join("root")).is_ok();
    let mut found = Vec::new();
    list_files(base.path(), &mut found, base.path());
    created.then_some(found)
}

proptest! {
    #[test]
    fn paths_lead_to_the_same_files(
        entries in vec(entry(), 1..24),
        paths in vec(path(), 1..24),
    ) {
        let base = create_tree(&entries);
        let root = base.path().join("root");
        let reference = pathrs::Root::open(&root).unwrap();
        for resolver in BOTH {
            let root = RootDir::open(&root, resolver).unwrap();
            for path in &paths {
                let found = look_up(&root, path);
                let expected = look_up_with_pathrs(&reference, path);
                prop_assert_eq!(found, expected, "{:?} {}", resolver, path);
            }
        }
    }

    #[test]
    fn the_same_directories_are_created(entries in vec(entry(), 1..24), path in path()) {
        let mode = 0o755;
        let theirs = files_after(&create_tree(&entries), |root| {
            let root = pathrs::Root::open(root)?;
            let mode = fs::Permissions::from_mode(mode);
            retry(|| root.mkdir_all(&path, &mode)).map(drop)
        });
        let mode = Mode::from_bits_truncate(mode);
        let ours = files_after(&create_tree(&entries), |root| create(root, &path, mode));
        prop_assert_eq!(&ours, &theirs, "{}", path);
    }
}
