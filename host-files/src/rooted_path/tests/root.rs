//! Tests that both resolvers have the same results, also if the kernel has no `openat2`.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use tempfile::TempDir;

use crate::rooted_path::{
    Error, FileKind, Resolver, RootDir, TrailingSymlink, Walk, join_component_names,
};

/// The expected result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LookupResult {
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
use LookupResult::{Directory, Links, NotADirectory, NotAPath, Nothing, Release, TooLong};

/// Runs `test` with each resolver, and in threads in which `openat2` fails as on an old kernel
/// and as under an old seccomp filter.
fn with_each_resolver(test: impl Fn(Resolver) + Sync) {
    test(Resolver::Openat2);
    test(Resolver::Walk);
    for errno in [Errno::ENOSYS, Errno::EPERM] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                hide_openat2(errno);
                test(Resolver::Openat2);
            });
        });
    }
}

/// Makes `openat2` fail with an error in this thread, by a seccomp filter that cannot be removed.
fn hide_openat2(errno: Errno) {
    let filter = SeccompFilter::new(
        [(OPENAT2, Vec::new())].into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// The number of the system call `openat2`, which is the same on every architecture.
const OPENAT2: i64 = 437;

/// Creates a directory with a root that has symbolic links of every kind, and with files beside
/// the root that must not be reached.
fn create_root_with_links() -> TempDir {
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

fn look_up(root: &RootDir, path: &str) -> LookupResult {
    match root.lookup(Path::new(path)) {
        Ok(None) => Nothing,
        Ok(Some(handle)) if handle.kind() == FileKind::Directory => Directory,
        Ok(Some(handle)) => {
            let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
            assert_eq!(fs::read_to_string(path).unwrap(), "inside");
            Release
        }
        Err(Error::TooManyLinks { .. }) => Links,
        Err(Error::UnexpectedLink { .. }) => panic!("{path}: links are followed"),
        Err(Error::Path { .. }) => NotAPath,
        Err(Error::System { errno, .. }) => match errno {
            Errno::ENOTDIR => NotADirectory,
            Errno::ENAMETOOLONG => TooLong,
            errno => panic!("{path}: {errno}"),
        },
    }
}

#[test]
fn a_path_without_links_is_found_and_one_with_a_link_is_refused() {
    let base = create_root_with_links();
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let root = RootDir::open(&base.path().join("root"), resolver).unwrap();
        let plain = |path: &str| root.lookup_no_symlinks(Path::new(path));
        assert!(plain("/etc/os-release").unwrap().is_some());
        assert!(plain("/etc/no-such").unwrap().is_none());
        for path in ["relative", "lib/deep", "usr/lib/up", "/absolute"] {
            assert!(
                matches!(plain(path), Err(Error::UnexpectedLink { .. })),
                "{path}"
            );
        }
    }
}

#[test]
fn both_resolvers_stay_in_the_root_and_agree() {
    let base = create_root_with_links();
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
        // The parent of the root is the root itself.
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
        // `..` after a link leads to the parent of the link's target.
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
    with_each_resolver(|resolver| {
        let root = RootDir::open(&base.path().join("root"), resolver).unwrap();
        for (path, expected) in cases {
            let shown = &path[..path.len().min(60)];
            assert_eq!(look_up(&root, path), expected, "{resolver:?} {shown}");
        }
    });
}

#[test]
fn magic_links_are_never_followed() {
    let pid = std::process::id();
    with_each_resolver(|resolver| {
        let root = RootDir::open(Path::new("/"), resolver).unwrap();
        for link in ["root", "cwd", "exe", "fd/0", "ns/mnt", "root/etc"] {
            let path = format!("/proc/{pid}/{link}");
            let result = root.lookup(Path::new(&path));
            let is_refused = matches!(result, Err(Error::TooManyLinks { .. }));
            assert!(is_refused, "{resolver:?} {path}");
        }
    });
}

#[test]
fn a_file_is_opened_for_use_inside_the_root() {
    let base = create_root_with_links();
    let errno = |error: Error| Some(error.errno());
    with_each_resolver(|resolver| {
        let root = RootDir::open(&base.path().join("root"), resolver).unwrap();
        let open = |path: &str, flags| root.open_file(Path::new(path), flags);
        for path in ["etc/os-release", "absolute", "escape"] {
            let file = open(path, OFlag::O_RDONLY).unwrap().unwrap();
            let text = std::io::read_to_string(fs::File::from(file)).unwrap();
            assert_eq!(text, "inside", "{resolver:?} {path}");
        }
        let link = open("absolute", OFlag::O_PATH | OFlag::O_NOFOLLOW);
        let text = readlinkat(link.unwrap().unwrap(), "").unwrap();
        assert_eq!(text, "/etc/os-release");
        let no_link = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY;
        for (path, flags, refusal) in [
            ("out", OFlag::O_RDONLY, None),
            ("absolute", no_link, Some(Errno::ELOOP)),
            ("absolute", directory, Some(Errno::ENOTDIR)),
        ] {
            let opened = open(path, flags);
            let found = opened.map_or_else(errno, |file| file.map(|_| Errno::EEXIST));
            assert_eq!(found, refusal, "{resolver:?} {path}");
        }
    });
}

#[test]
fn a_path_is_found_while_another_thread_renames_files() {
    let base = tempfile::tempdir().unwrap();
    let top = base.path().join("host");
    fs::create_dir_all(top.join("devices/npu0")).unwrap();
    fs::create_dir_all(top.join("class/npu")).unwrap();
    symlink("../../devices/npu0", top.join("class/npu/npu0")).unwrap();
    let root = RootDir::open(&top, Resolver::Openat2).unwrap();
    let done = AtomicBool::new(false);
    let (one, two) = (base.path().join("one"), base.path().join("two"));
    fs::write(&one, "").unwrap();
    std::thread::scope(|scope| {
        // The kernel cannot resolve `..` reliably during a concurrent rename.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&one, &two).unwrap();
                fs::rename(&two, &one).unwrap();
            }
        });
        let failures = (0..20_000)
            .filter(|_| look_up(&root, "/class/npu/npu0") != Directory)
            .count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failures, 0);
    });
}

#[test]
fn a_walk_returns_each_file_before_it_opens_one_below_it() {
    let base = create_root_with_links();
    let root = RootDir::open(&base.path().join("root"), Resolver::Walk).unwrap();
    let walk_to_end = |path: &str, last| {
        let mut walk = Walk::new(root.as_fd(), Path::new(path), last).unwrap();
        let mut steps = Vec::new();
        while let Some(step) = walk.step().unwrap() {
            steps.push(step.path(Path::new("/")).display().to_string());
        }
        let end = walk.finish().unwrap();
        let path = join_component_names(Path::new("/"), &end.opened_components)
            .display()
            .to_string();
        (
            steps.join(" "),
            path,
            end.missing_names.len(),
            end.is_dangling,
        )
    };
    let (follow, no_follow) = (TrailingSymlink::Follow, TrailingSymlink::NoFollow);
    let lib = "/lib /usr /usr/lib";
    let release = format!("{lib} /usr/lib/up /etc /etc/os-release");
    for (path, last, steps, end, missing, is_dangling) in [
        ("lib/up", follow, &*release, "/etc/os-release", 0, false),
        ("lib/up", no_follow, lib, "/usr/lib/up", 0, false),
        ("etc/x/../y", follow, "/etc", "/etc", 3, false),
        ("dangling", follow, "/dangling", "/", 1, true),
        ("dangling", no_follow, "", "/dangling", 0, false),
        ("/", follow, "", "/", 0, false),
    ] {
        let expected = (steps.to_owned(), end.to_owned(), missing, is_dangling);
        assert_eq!(walk_to_end(path, last), expected, "{path} {last:?}");
    }
}

#[test]
fn a_link_that_leads_deeper_than_256_directories_is_refused() {
    // The walk keeps a descriptor open for each level, and a process may not have many.
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
    // The path `down/on` is 251 levels deep, and the target of `on` adds 10 levels.
    let error = root.lookup(Path::new("start")).unwrap_err();
    assert_eq!(error.errno(), Errno::ENAMETOOLONG);
}
