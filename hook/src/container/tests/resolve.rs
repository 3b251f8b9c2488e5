//! One table of cases for both resolvers.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::errno::Errno;
use tempfile::TempDir;

use crate::container::{Error, FileKind, Resolver, RootDir};

/// What a look-up is expected to give.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    /// The file `etc/os-release` inside the root.
    Release,
    /// Some directory inside the root.
    Directory,
    Nothing,
    Links,
    NotADirectory,
    NotAPath,
    TooLong,
}
use Found::{Directory, Links, NotADirectory, NotAPath, Nothing, Release, TooLong};

const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Walk];

/// A root with links of every kind, next to files that must not be reached.
fn fixture() -> TempDir {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("root");
    fs::create_dir_all(base.path().join("etc")).unwrap();
    fs::write(base.path().join("etc/os-release"), "outside").unwrap();
    fs::write(base.path().join("secret"), "outside").unwrap();
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
    fs::write(root.join("etc/os-release"), "inside").unwrap();
    for (link, target) in [
        ("lib", "usr/lib"),
        ("relative", "etc/os-release"),
        ("absolute", "/etc/os-release"),
        ("escape", "../../../../../etc/os-release"),
        ("usr/lib/up", "../../../../etc/os-release"),
        ("usr/lib/back", "../.."),
        ("usr/lib/top", "/"),
        ("out", "../secret"),
        ("loop", "loop"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("dangling", "nowhere"),
        ("dangling-out", "/../../secret"),
        ("slash", "etc/os-release/"),
        ("chain0", "etc/os-release"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    symlink(base.path().join("secret"), root.join("host-path")).unwrap();
    for index in 1..=40 {
        let link = root.join(format!("chain{index}"));
        symlink(format!("chain{}", index - 1), link).unwrap();
    }
    base
}

fn found(root: &RootDir, path: &str) -> Found {
    match root.lookup(Path::new(path)) {
        Ok(None) => Nothing,
        Ok(Some(handle)) if handle.kind() == FileKind::Directory => Directory,
        Ok(Some(handle)) => {
            let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
            assert_eq!(fs::read_to_string(path).unwrap(), "inside");
            Release
        }
        Err(Error::Links { .. }) => Links,
        Err(Error::Path { .. }) => NotAPath,
        Err(Error::System { errno, .. }) => match errno {
            Errno::ENOTDIR => NotADirectory,
            Errno::ENAMETOOLONG => TooLong,
            errno => panic!("{path}: {errno}"),
        },
        Err(error) => panic!("{path}: {error}"),
    }
}

#[test]
fn both_resolvers_stay_in_the_root_and_agree() {
    let base = fixture();
    let deep = "usr/lib/deep/../../../".repeat(40) + "etc/os-release";
    let deeper = "usr/".repeat(10_000);
    let long_name = "x".repeat(256);
    let cases = [
        ("/etc/os-release", Release),
        ("etc/os-release", Release),
        ("//etc/.//os-release", Release),
        ("/", Directory),
        (".", Directory),
        ("..", Directory),
        ("/etc/", Directory),
        ("/etc/..", Directory),
        ("/no/such", Nothing),
        ("/etc/no-such", Nothing),
        // Up from the root is the root.
        ("../../../../etc/os-release", Release),
        ("/etc/../../../etc/os-release", Release),
        ("../secret", Nothing),
        // Links always lead to places inside the root.
        ("lib", Directory),
        ("lib/deep", Directory),
        ("relative", Release),
        ("absolute", Release),
        ("escape", Release),
        ("usr/lib/up", Release),
        ("lib/up", Release),
        ("lib/back/etc/os-release", Release),
        ("lib/top/lib/top/etc/os-release", Release),
        // Back from a link's target is the target's parent.
        ("lib/../lib/deep", Directory),
        ("lib/../../etc/os-release", Release),
        ("out", Nothing),
        ("host-path", Nothing),
        ("dangling", Nothing),
        ("dangling/x", Nothing),
        ("dangling-out", Nothing),
        // 40 links are followed, and no more.
        ("chain39", Release),
        ("chain40", Links),
        ("loop", Links),
        ("ping", Links),
        ("loop/x", Links),
        // A file has nothing below it.
        ("etc/os-release/x", NotADirectory),
        ("etc/os-release/", NotADirectory),
        ("etc/os-release/.", NotADirectory),
        ("etc/os-release/..", NotADirectory),
        ("slash", NotADirectory),
        ("absolute/../os-release", NotADirectory),
        // Sizes are bounded.
        (deep.as_str(), Release),
        (deeper.as_str(), NotAPath),
        (long_name.as_str(), TooLong),
        ("", NotAPath),
        ("etc\0", NotAPath),
    ];
    for resolver in BOTH {
        let root = RootDir::open(&base.path().join("root"), resolver).unwrap();
        for (path, expected) in cases {
            let shown = &path[..path.len().min(60)];
            assert_eq!(found(&root, path), expected, "{resolver:?} {shown}");
        }
    }
}

#[test]
fn magic_links_are_never_followed() {
    let pid = std::process::id();
    for resolver in BOTH {
        let root = RootDir::open(Path::new("/"), resolver).unwrap();
        for link in ["root", "cwd", "exe", "fd/0", "ns/mnt", "root/etc"] {
            let path = format!("/proc/{pid}/{link}");
            let result = root.lookup(Path::new(&path));
            assert!(
                matches!(result, Err(Error::Links { .. })),
                "{resolver:?} {path}"
            );
        }
    }
}

#[test]
fn links_do_not_lead_deeper_than_a_path_may() {
    // Each level of the walk holds a descriptor, and they are not endless.
    let base = tempfile::tempdir().unwrap();
    let level = "d".repeat(8);
    let mut path = base.path().to_owned();
    for _ in 0..250 {
        path.push(&level);
    }
    fs::create_dir_all(&path).unwrap();
    let down = vec![level.as_str(); 250].join("/");
    symlink(&down, base.path().join("down")).unwrap();
    symlink(format!("{down}/on"), base.path().join("start")).unwrap();
    symlink([level.as_str(); 10].join("/"), path.join("on")).unwrap();
    fs::create_dir_all(path.join([level.as_str(); 10].join("/"))).unwrap();

    let root = RootDir::open(base.path(), Resolver::Walk).unwrap();
    assert!(root.lookup(Path::new("down")).unwrap().is_some());
    // A link's target may not go deeper than a path may.
    let error = root.lookup(Path::new("start")).unwrap_err();
    assert!(matches!(
        error,
        Error::System {
            errno: Errno::ENAMETOOLONG,
            ..
        }
    ));
}
