//! Files and directories of several owners and modes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use nix::unistd::{geteuid, mkfifo};

use super::*;

/// A directory that is ours, with the file `d/f`.
fn tree() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    fs::write(root.path().join("d/f"), "text").unwrap();
    for (name, mode) in [("d", 0o755), ("d/f", 0o644)] {
        fs::set_permissions(root.path().join(name), Permissions::from_mode(mode)).unwrap();
    }
    root
}

/// Returns the fault of `path` in the tree, without the tree's own path.
fn fault(tree: &tempfile::TempDir, path: &str) -> Option<String> {
    let error = open_trusted_file(&tree.path().join(path))
        .err()?
        .to_string();
    Some(error.replace(&tree.path().display().to_string(), ""))
}

#[test]
fn a_file_that_others_can_change_is_refused_with_the_command_that_fixes_it() {
    for (name, mode, fix) in [
        ("d/f", 0o644, None),
        ("d/f", 0o600, None),
        ("d/f", 0o664, Some("run: chmod go-w /d/f")),
        ("d/f", 0o646, Some("run: chmod go-w /d/f")),
        ("d", 0o777, Some("run: chmod go-w /d")),
        ("d", 0o775, Some("run: chmod go-w /d")),
        ("d", 0o1777, None),
        ("", 0o777, Some("run: chmod go-w ")),
    ] {
        let tree = tree();
        fs::set_permissions(tree.path().join(name), Permissions::from_mode(mode)).unwrap();
        let fault = fault(&tree, "d/f");
        assert_eq!(fault.is_some(), fix.is_some(), "{name} {mode:o}: {fault:?}");
        if let (Some(fault), Some(fix)) = (fault, fix) {
            assert!(fault.contains(fix), "{fault}");
            assert!(fault.contains(&format!("has mode {mode:04o}")), "{fault}");
        }
    }
}

#[test]
fn a_file_of_another_user_is_refused_with_the_command_that_fixes_it() {
    if !geteuid().is_root() {
        return skip::report("owners of class files", "only root can give files away");
    }
    for name in ["", "d", "d/f"] {
        let tree = tree();
        fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
        chown(tree.path().join(name), Some(4711), None).unwrap();
        let fault = fault(&tree, "d/f").unwrap();
        assert!(fault.contains("belongs to uid 4711"), "{fault}");
        assert!(fault.contains("run: chown root: "), "{fault}");
    }
}

#[test]
fn links_are_followed_and_checked() {
    let tree = tree();
    let root = tree.path();
    symlink("../d/f", root.join("d/relative")).unwrap();
    symlink(root.join("d"), root.join("absolute")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    assert_eq!(fault(&tree, "absolute/relative"), None);
    assert_eq!(fault(&tree, "d/../d/./f"), None);
    let fault = |path| fault(&tree, path).unwrap();
    assert!(fault("loop").contains("Too many levels of symbolic links"));
    assert!(fault("d/none").contains("No such file or directory"));
    assert!(fault("d/f/g").contains("Not a directory"));

    fs::create_dir(root.join("open")).unwrap();
    symlink("../d/f", root.join("open/link")).unwrap();
    fs::set_permissions(root.join("open"), Permissions::from_mode(0o777)).unwrap();
    symlink("open/link", root.join("via")).unwrap();
    assert!(fault("via").contains("chmod go-w /open"));
    let directory = TrustedDirectory::open(root).unwrap();
    let via = directory
        .open_file(OsStr::new("via"))
        .unwrap_err()
        .to_string();
    assert!(via.contains("/open has mode 0777"), "{via}");
}

#[test]
fn a_directory_in_which_every_user_can_create_files_is_found() {
    let tree = tree();
    let mode = |name: &str, mode| {
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(tree.path().join(name), permissions).unwrap();
    };
    fs::create_dir(tree.path().join("open")).unwrap();
    symlink("../d/f", tree.path().join("open/link")).unwrap();
    symlink("open/link", tree.path().join("via")).unwrap();
    let shared = |path| match TrustedTree::new(tree.path()).find_file(Path::new(path)) {
        Err(OwnershipError::WorldWritable { path, .. }) => {
            Some(path.strip_prefix(tree.path()).unwrap().to_owned())
        }
        found => found.map(|_| None).unwrap(),
    };
    for (open, wanted) in [(0o755, None), (0o777, Some("open")), (0o1777, Some("open"))] {
        mode("open", open);
        // What everybody can write to, or another user's, is root's decision.
        mode("d/f", 0o666);
        assert_eq!(shared("/d/f"), None);
        assert_eq!(shared("/open/link"), wanted.map(PathBuf::from), "{open:o}");
        assert_eq!(shared("/via"), wanted.map(PathBuf::from), "{open:o}");
        assert_eq!(shared("/open"), None);
    }
}

/// The directory `d` belongs to a daemon's user, who may make any name in it.
#[test]
fn links_count_only_if_they_and_their_directories_are_roots() {
    if !geteuid().is_root() {
        return skip::report("owners of links", "only root can give files away");
    }
    let tree = tree();
    let root = tree.path();
    fs::write(root.join("secret"), "text").unwrap();
    symlink("../secret", root.join("d/link")).unwrap();
    symlink("d/f", root.join("to-daemons")).unwrap();
    symlink("d/link", root.join("twice")).unwrap();
    symlink("secret", root.join("users")).unwrap();
    std::os::unix::fs::lchown(root.join("users"), Some(4711), None).unwrap();
    fs::hard_link(root.join("secret"), root.join("d/named")).unwrap();
    let found = |path: &str| {
        let found = TrustedTree::new(root).find_file(Path::new(path));
        found.map(|found| {
            (
                found.path.strip_prefix(root).unwrap().to_owned(),
                found.can_others_replace,
            )
        })
    };
    let at = |path: &str, can_others_replace| (PathBuf::from(path), can_others_replace);
    assert_eq!(found("/d/link").unwrap(), at("secret", false));
    assert_eq!(found("/d/named").unwrap(), at("d/named", false));
    for (uid, mode) in [(4711, 0o755), (0, 0o775), (0, 0o1775)] {
        chown(root.join("d"), Some(uid), None).unwrap();
        fs::set_permissions(root.join("d"), Permissions::from_mode(mode)).unwrap();
        for path in ["/d/link", "/twice", "/d/link/x"] {
            let error = found(path).unwrap_err();
            assert!(
                matches!(error, OwnershipError::ReplaceableLink { .. }),
                "{path}: {error}"
            );
        }
        let error = found("/d/named").unwrap_err();
        assert!(matches!(error, OwnershipError::HardLinks { .. }), "{error}");
        for path in ["/d/f", "/to-daemons"] {
            assert_eq!(found(path).unwrap(), at("d/f", true), "{path}");
        }
    }
    let error = found("/users").unwrap_err();
    assert!(
        matches!(error, OwnershipError::ReplaceableLink { .. }),
        "{error}"
    );

    let checked = TrustedTree::new(root).find_file(Path::new("/d/f")).unwrap();
    checked.open().unwrap();
    fs::rename(root.join("secret"), root.join("d/f")).unwrap();
    let error = checked.open().unwrap_err().to_string();
    assert!(error.contains("/d/f: it was replaced"), "{error}");
}

/// A directory of root's, and one whose owner may have put another file there meanwhile.
#[test]
fn a_file_that_was_found_is_read_unless_it_was_replaced() {
    for mode in [0o755, 0o775] {
        let top = tree();
        let directory = top.path().join("d");
        fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        let find = || {
            TrustedTree::new(top.path())
                .find_file(Path::new("/d/f"))
                .unwrap()
        };
        let found = find();
        assert_eq!(found.can_others_replace, mode != 0o755);
        let read = |file: &TreeFile| file.open_for_reading().unwrap().read(100).unwrap();
        assert_eq!(read(&found), b"text");
        fs::write(directory.join("other"), "other").unwrap();
        fs::rename(directory.join("other"), directory.join("f")).unwrap();
        let error = found.open_for_reading().unwrap_err().to_string();
        assert!(error.contains("it was replaced"), "{error}");
        assert_eq!(read(&find()), b"other");
        fs::remove_file(directory.join("f")).unwrap();
        mkfifo(&directory.join("f"), Mode::S_IRUSR).unwrap();
        let error = find().open_for_reading().unwrap_err().to_string();
        assert!(error.contains("a named pipe"), "{error}");
    }
}

#[test]
fn a_program_is_found_inside_its_root() {
    let tree = tree();
    symlink("/d/f", tree.path().join("d/absolute")).unwrap();
    symlink("../../../d/f", tree.path().join("d/upwards")).unwrap();
    for path in ["/d/f", "/d/absolute", "/d/upwards"] {
        let found = resolve_trusted_program(tree.path(), Path::new(path)).unwrap();
        assert_eq!(found, tree.path().join("d/f"), "{path}");
    }
    fs::set_permissions(tree.path().join("d"), Permissions::from_mode(0o777)).unwrap();
    assert!(resolve_trusted_program(tree.path(), Path::new("/d/f")).is_err());
}

/// A class may name many paths in a directory that only other distributions have.
#[test]
fn a_missing_directory_is_looked_up_once() {
    let top = tempfile::tempdir().unwrap();
    let tree = TrustedTree::new(top.path());
    let missing = top.path().join("opt");
    let error = |path: &str| tree.find_file(Path::new(path)).unwrap_err().to_string();
    for path in ["/opt/a/b", "/opt/a/c", "/opt/d"] {
        let begins = format!("cannot open {}: ", missing.display());
        assert!(error(path).starts_with(&begins), "{}", error(path));
    }
    fs::create_dir(&missing).unwrap();
    fs::write(missing.join("d"), "").unwrap();
    assert!(error("/opt/d").contains("No such file"));
    TrustedTree::new(top.path())
        .find_file(Path::new("/opt/d"))
        .unwrap();
}
