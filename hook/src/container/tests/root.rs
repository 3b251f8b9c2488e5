//! Operations on a root in a temporary directory, with both path resolvers.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use device_class::host::{DeviceKind, DeviceNumber};
use host_files::rooted_path;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, mkfifo};
use tempfile::TempDir;

use crate::container::{ContainerRoot, DeviceAccess, Error, FileKind, FileName, Resolver};

const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);
const FILE: Mode = Mode::from_bits_truncate(0o644);

/// Runs `test` on a fresh root for each resolver. The directory `outside` next to the root
/// must be empty afterwards.
fn in_each_root(test: impl Fn(&ContainerRoot, &Path)) {
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let base = TempDir::new().unwrap();
        let path = base.path().join("root");
        fs::create_dir_all(path.join("usr/lib")).unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        symlink("usr/lib", path.join("lib")).unwrap();
        symlink("../outside", path.join("out")).unwrap();
        symlink(base.path().join("outside"), path.join("out-absolute")).unwrap();
        symlink("usr/gone", path.join("dangling")).unwrap();
        symlink("lib/gone/further", path.join("dangling-deep")).unwrap();
        let root = ContainerRoot::open(&path, resolver).unwrap();
        test(&root, &path);
        let created_count = fs::read_dir(base.path().join("outside")).unwrap().count();
        assert_eq!(created_count, 0, "{resolver:?}: created outside the root");
    }
}

fn name(name: &str) -> FileName<'_> {
    FileName::new(name).unwrap()
}

fn occupied_by(error: Error) -> FileKind {
    match error {
        Error::AlreadyExists { found_kind, .. } => found_kind,
        other => panic!("{other}"),
    }
}

#[test]
fn directories_are_made_inside_the_root() {
    in_each_root(|root, path| {
        for (requested_path, created_path) in [
            ("/a/b/c", "a/b/c"),
            ("a/b/c", "a/b/c"),
            ("/lib/vendor/x", "usr/lib/vendor/x"),
            ("../../up", "up"),
            ("/lib/../sibling", "usr/sibling"),
            ("/", ""),
        ] {
            root.create_dir_all(Path::new(requested_path), DIRECTORY)
                .unwrap();
            assert!(path.join(created_path).is_dir(), "{requested_path}");
        }
    });
}

#[test]
fn nothing_is_made_through_a_dangling_link() {
    in_each_root(|root, path| {
        for requested_path in [
            "dangling",
            "dangling/x",
            "dangling-deep/x",
            "out/x",
            "out-absolute/x",
        ] {
            let error = root
                .create_dir_all(Path::new(requested_path), DIRECTORY)
                .unwrap_err();
            assert!(
                matches!(error, Error::DanglingSymlink { .. }),
                "{requested_path}: {error}"
            );
        }
        assert!(!path.join("usr/gone").exists());
        assert!(!path.join("usr/lib/gone").exists());
    });
}

#[test]
fn a_file_in_the_way_of_a_directory_is_an_error() {
    in_each_root(|root, path| {
        fs::write(path.join("usr/file"), "").unwrap();
        let error = root.create_dir_all(Path::new("usr/file"), DIRECTORY);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "usr/file is a regular file, and not a directory");
        assert!(
            root.create_dir_all(Path::new("usr/file/x"), DIRECTORY)
                .is_err()
        );
    });
}

#[test]
fn mount_points_are_made_where_nothing_is() {
    in_each_root(|root, path| {
        let make_mount_point = |path: &str, kind| {
            root.open_or_create_mount_point(Path::new(path), kind)
                .unwrap()
        };
        let target = make_mount_point("/opt/v/file", FileKind::Regular);
        assert!(target.is_newly_created());
        assert_eq!(target.path(), PathBuf::from("/opt/v/file"));
        let meta = fs::metadata(path.join("opt/v/file")).unwrap();
        assert!(meta.is_file());
        assert_eq!(meta.mode() & 0o777, 0o444);

        assert!(make_mount_point("/opt/v/dir", FileKind::Directory).is_newly_created());
        assert!(path.join("opt/v/dir").is_dir());

        // The second call finds the existing mount points.
        assert!(!make_mount_point("/opt/v/file", FileKind::Regular).is_newly_created());
        assert!(!make_mount_point("/opt/v/dir", FileKind::Directory).is_newly_created());
    });
}

#[test]
fn a_link_is_no_mount_point() {
    in_each_root(|root, path| {
        symlink("usr/lib", path.join("to-dir")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        symlink("file", path.join("to-file")).unwrap();
        for link in ["to-dir", "to-file", "dangling", "out", "out-absolute"] {
            for kind in [FileKind::Regular, FileKind::Directory, FileKind::CharDevice] {
                let error = root
                    .open_or_create_mount_point(Path::new(link), kind)
                    .unwrap_err();
                assert!(
                    matches!(error, Error::SymlinkAtMountPoint { .. }),
                    "{link}: {error}"
                );
            }
        }
    });
}

#[test]
fn only_like_covers_like() {
    use FileKind::{CharDevice, Directory, Fifo, Regular, Socket};
    in_each_root(|root, path| {
        fs::create_dir(path.join("directory")).unwrap();
        fs::write(path.join("regular"), "").unwrap();
        mkfifo(&path.join("fifo"), FILE).unwrap();
        let _listener = UnixListener::bind(path.join("socket")).unwrap();
        for (found, source, covers) in [
            ("directory", Directory, true),
            ("directory", Regular, false),
            ("directory", CharDevice, false),
            ("regular", Regular, true),
            ("regular", CharDevice, true),
            ("regular", Socket, true),
            ("regular", Directory, false),
            ("fifo", Regular, false),
            ("fifo", CharDevice, false),
            ("fifo", Fifo, true),
            ("socket", Regular, false),
            ("socket", Socket, true),
            ("socket", Directory, false),
        ] {
            let result = root.open_or_create_mount_point(Path::new(found), source);
            assert_eq!(result.is_ok(), covers, "{source} on {found}");
        }
    });
}

#[test]
fn a_path_has_to_end_in_a_name() {
    in_each_root(|root, _| {
        for path in ["/", "..", "usr/..", "usr/.", ""] {
            let error = root.open_or_create_mount_point(Path::new(path), FileKind::Directory);
            assert!(
                matches!(error, Err(Error::File(rooted_path::Error::Path { .. }))),
                "{path:?}"
            );
        }
    });
}

#[test]
fn links_are_made_once() {
    in_each_root(|root, path| {
        let link = Path::new("/lib/vendor/libx.so");
        let target = Path::new("libx.so.1");
        root.symlink(link, target).unwrap();
        root.symlink(link, target).unwrap();
        assert_eq!(
            fs::read_link(path.join("usr/lib/vendor/libx.so")).unwrap(),
            target
        );

        let error = root.symlink(link, Path::new("libx.so.2")).unwrap_err();
        assert_eq!(occupied_by(error), FileKind::Symlink);
        fs::write(path.join("usr/lib/vendor/file"), "").unwrap();
        let error = root.symlink(Path::new("/lib/vendor/file"), target);
        assert_eq!(occupied_by(error.unwrap_err()), FileKind::Regular);

        let error = root.symlink(Path::new("out/link"), target).unwrap_err();
        assert!(matches!(error, Error::DanglingSymlink { .. }));
    });
}

#[test]
fn only_regular_files_are_read_and_only_so_far() {
    in_each_root(|root, path| {
        fs::write(path.join("usr/ten"), "0123456789").unwrap();
        symlink("/usr/ten", path.join("link")).unwrap();
        mkfifo(&path.join("fifo"), FILE).unwrap();
        let read = |path: &str, cap| root.read_file(Path::new(path), cap);

        assert_eq!(read("usr/ten", 10).unwrap().unwrap(), b"0123456789");
        assert_eq!(read("link", 100).unwrap().unwrap(), b"0123456789");
        assert_eq!(read("usr/none", 10).unwrap(), None);
        assert_eq!(read("out-absolute/x", 10).unwrap(), None);
        assert!(matches!(
            read("usr/ten", 9),
            Err(Error::TooLarge { max_bytes: 9, .. })
        ));
        // Opening a pipe without a writer would block the reader for ever.
        for (path, kind) in [("fifo", FileKind::Fifo), ("usr", FileKind::Directory)] {
            match read(path, 10) {
                Err(Error::WrongKind { found_kind, .. }) => assert_eq!(found_kind, kind),
                other => panic!("{path}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_file_is_replaced_whole() {
    in_each_root(|root, path| {
        let replace = |path: &str, text: &str| {
            root.open_writable_file(Path::new(path))?
                .replace(text.as_bytes(), FILE)
        };
        let text = |file: &str| fs::read_to_string(path.join(file)).unwrap();
        let mode = |file: &str| fs::metadata(path.join(file)).unwrap().mode() & 0o7777;
        fs::create_dir(path.join("etc")).unwrap();

        replace("/etc/new", "first").unwrap();
        assert_eq!(text("etc/new"), "first");
        assert_eq!(mode("etc/new"), 0o644);

        // The mode of the old file is kept, and a hard link still leads to the old content.
        fs::set_permissions(path.join("etc/new"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(path.join("etc/new"), path.join("etc/other-name")).unwrap();
        replace("/etc/new", "second").unwrap();
        assert_eq!(text("etc/new"), "second");
        assert_eq!(mode("etc/new"), 0o600);
        assert_eq!(text("etc/other-name"), "first");

        // The target of a link is replaced, and the link is kept.
        symlink("../usr/lib/cache", path.join("etc/link")).unwrap();
        fs::write(path.join("usr/lib/cache"), "old").unwrap();
        replace("/etc/link", "third").unwrap();
        assert_eq!(text("usr/lib/cache"), "third");
        assert!(path.join("etc/link").is_symlink());

        for (bad, text) in [
            ("dangling", "through it"),
            ("out/x", "through it"),
            ("usr", "not a regular"),
        ] {
            let error = replace(bad, "").unwrap_err().to_string();
            assert!(error.contains(text), "{bad}: {error}");
        }
        for directory in ["etc", "usr", "usr/lib", "."] {
            for entry in fs::read_dir(path.join(directory)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(!name.starts_with(".boathook"), "{name} is left");
            }
        }
    });
}

#[test]
fn a_directory_makes_entries_by_name() {
    in_each_root(|root, path| {
        let directory = root.create_dir_all(Path::new("/run/v"), DIRECTORY).unwrap();
        directory.write_new_file(name("file"), b"", FILE).unwrap();
        directory.create_dir(name("sub"), DIRECTORY).unwrap();
        directory.create_dir(name("sub"), DIRECTORY).unwrap();
        directory.symlink(name("link"), Path::new("file")).unwrap();
        assert!(path.join("run/v/file").is_file());
        assert!(path.join("run/v/sub").is_dir());
        let open_entry = |path| directory.directory().open(name(path)).unwrap();
        assert_eq!(open_entry("link").unwrap().kind(), FileKind::Symlink);
        assert!(open_entry("none").is_none());

        let error = directory
            .write_new_file(name("file"), b"", FILE)
            .unwrap_err();
        let expected_message = "/run/v/file exists already: it is a regular file";
        assert_eq!(error.to_string(), expected_message);
        assert!(directory.create_dir(name("link"), DIRECTORY).is_err());
    });
}

#[test]
fn device_nodes_are_made_once() {
    if !Uid::effective().is_root() {
        return skip::report(
            "device_nodes_are_made_once",
            "making device nodes needs root",
        );
    }
    let null_device = DeviceNumber {
        kind: DeviceKind::Character,
        major: 1,
        minor: 3,
    };
    let access = DeviceAccess {
        mode: Mode::from_bits_truncate(0o600),
        uid: Uid::from_raw(12),
        gid: Gid::from_raw(34),
    };
    in_each_root(|root, path| {
        let make = |number| root.create_device_node(Path::new("/dev/x"), number, access);
        make(null_device).unwrap();
        make(null_device).unwrap();
        let meta = fs::metadata(path.join("dev/x")).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o777),
            (12, 34, 0o600)
        );
        assert_eq!(meta.rdev(), 0x103);
        let error = make(DeviceNumber {
            minor: 5,
            ..null_device
        })
        .unwrap_err();
        assert_eq!(occupied_by(error), FileKind::CharDevice);
        // Only a device node can cover a device node.
        let device = Path::new("/dev/x");
        assert!(
            root.open_or_create_mount_point(device, FileKind::BlockDevice)
                .is_ok()
        );
        assert!(
            root.open_or_create_mount_point(device, FileKind::Regular)
                .is_err()
        );
        assert!(root.read_file(device, 10).is_err());
    });
}

#[test]
fn a_target_reports_what_it_shows() {
    in_each_root(|root, path| {
        fs::write(path.join("usr/file"), "").unwrap();
        let there = root.resolve(Path::new("usr/file")).unwrap().unwrap();
        for (path, is_shown) in [("usr/file", true), ("usr/other", false)] {
            let target = root.open_or_create_mount_point(Path::new(path), FileKind::Regular);
            let shows = target.unwrap().has_identity(there.identity());
            assert_eq!(shows, is_shown, "{path}");
        }
    });
}
