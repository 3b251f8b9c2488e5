use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn links_stay_inside_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("data/args")).unwrap();
    fs::write(root.join("data/args/file"), "x").unwrap();
    symlink("/data", root.join("absolute")).unwrap();
    symlink("../../../../data", root.join("above")).unwrap();
    let host = HostRoot::open(root).unwrap();
    for path in [
        "/absolute/args/file",
        "/above/args/file",
        "/data/../data/args/file",
    ] {
        let text = host.read(Path::new(path)).unwrap();
        assert_eq!(text.as_deref(), Some("x"), "{path}");
    }
    assert_eq!(host.read(Path::new("/absolute/none")).unwrap(), None);
}

/// Files that are no UTF-8 text, too large, or not regular are refused. Opening a FIFO does not
/// block.
#[test]
fn only_small_text_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("binary"), [0xff, 0xfe]).unwrap();
    fs::write(at("big"), vec![b'#'; MAX_FILE_BYTES as usize + 1]).unwrap();
    symlink("loop", at("loop")).unwrap();
    fs::create_dir(at("data")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    for (name, message) in [
        ("binary", "is not UTF-8 text"),
        ("big", "is larger than"),
        ("loop", "too many symbolic links"),
        ("data", "is not a regular file"),
        ("pipe", "is not a regular file"),
    ] {
        let error = host.read(&Path::new("/").join(name)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn missing_directories_come_outermost_first() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    let missing = host.find_missing_dirs(Path::new("/etc/a/b/file")).unwrap();
    assert_eq!(missing, ["/etc/a", "/etc/a/b"].map(PathBuf::from));
}

#[test]
fn a_directory_that_others_can_write_to_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("opt/shared/boathook");
    fs::create_dir_all(&inner).unwrap();
    let shared = dir.path().join("opt/shared");
    let host = HostRoot::open(dir.path()).unwrap();
    let file = Path::new("/opt/shared/boathook/file");
    let refusal = || {
        let placed = host.resolve(file).map(drop);
        let error = placed
            .and_then(|()| host.check_root_only_writable(file))
            .err();
        error.map(|e| e.to_string())
    };
    for mode in [0o777, 0o1777, 0o757] {
        fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        let message = refusal().unwrap();
        let said = "opt/shared: every user can write to it";
        assert!(message.contains(said), "{message}");
    }
    fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(refusal(), None);
}

#[test]
fn what_belongs_to_another_user_or_group_is_not_written_to() {
    if !nix::unistd::geteuid().is_root() {
        skip::report("host::what_belongs_to_another_user_or_group", "needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("opt");
    fs::create_dir(&theirs).unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    let file = Path::new("/opt/file");
    std::os::unix::fs::chown(&theirs, Some(1000), None).unwrap();
    let refused = |error: Error, said: &str| {
        let message = error.to_string();
        assert!(message.contains(said), "{message}");
    };
    let error = host.resolve(file).unwrap_err();
    refused(error, "/opt: it belongs to user 1000");

    // The administrator may let a group write to an engine's files. A group may not write to the
    // programs that root runs.
    std::os::unix::fs::chown(&theirs, Some(0), Some(1000)).unwrap();
    fs::set_permissions(&theirs, Permissions::from_mode(0o775)).unwrap();
    assert!(host.resolve(file).is_ok());
    let error = host.check_root_only_writable(file).unwrap_err();
    refused(error, "/opt: group 1000 can write to it");

    let link = dir.path().join("link");
    symlink("/data", &link).unwrap();
    assert!(host.resolve(Path::new("/link/file")).is_ok());
    std::os::unix::fs::lchown(&link, Some(1000), None).unwrap();
    let error = host.resolve(Path::new("/link/file")).unwrap_err();
    refused(error, "/link: the link belongs to user 1000");
}

#[test]
fn a_directory_that_is_moved_away_is_written_to_where_it_went() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    fs::create_dir(&before).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    let entry = host.resolve(Path::new("/before/file")).unwrap();
    fs::rename(&before, &after).unwrap();
    symlink(outside.path(), &before).unwrap();
    entry.create_file(0o644, |_| Ok(())).unwrap();
    assert!(after.join("file").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
