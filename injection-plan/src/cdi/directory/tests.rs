use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::cdi::{ContainerEdits, SpecifiedDevice};

/// Returns one device of each kind. The tests here do not look at the edits.
fn generated(kinds: &[&str]) -> GeneratedSpecifications {
    let specifications = kinds.iter().map(|kind| {
        let device = SpecifiedDevice {
            name: "npu-0".to_owned(),
            container_edits: ContainerEdits::default(),
        };
        Specification::new((*kind).to_owned(), vec![device])
    });
    GeneratedSpecifications {
        specifications: specifications.collect(),
        omissions: Vec::new(),
    }
}

const NONE: UnusableClasses = UnusableClasses {
    names: BTreeSet::new(),
    may_include_others: false,
};

fn plain(text: String) -> Option<SpecFileKind> {
    Some(scan_yaml_kind(text))
}

/// Returns the names of the files in the directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The plugin and `boathook cdi generate` write to the same directory.
#[test]
fn the_files_of_another_user_are_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let update = |kinds: &[&str], user| {
        let changes = update(
            scratch.path(),
            &generated(kinds),
            user,
            &NONE,
            |_| true,
            plain,
        );
        assert!(changes.unwrap().failures.is_empty());
        files(scratch.path())
    };
    let (people, plugin) = (
        "boathook-a.com-x.json",
        "boathook-a.com.pods.boathook.dev-x.json",
    );
    assert_eq!(update(&["a.com/x"], SpecificationOwner::User), [people]);
    let kinds = ["a.com.pods.boathook.dev/x"];
    assert_eq!(update(&kinds, SpecificationOwner::Plugin), [people, plugin]);
    assert_eq!(update(&[], SpecificationOwner::User), [plugin]);
    update(&["a.com/x"], SpecificationOwner::User);
    assert_eq!(update(&[], SpecificationOwner::Plugin), [people]);
}

#[test]
fn files_are_written_once_and_removed_when_their_devices_are_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("missing/cdi");
    let both = generated(&["a.com/x", "b.com/y"]);
    let written = update(
        &directory,
        &both,
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap()
    .changes;
    assert_eq!(written.len(), 2, "{written:?}");
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(
        update(
            &directory,
            &both,
            SpecificationOwner::User,
            &NONE,
            |_| true,
            plain
        )
        .unwrap()
        .changes,
        []
    );

    // Some classes were not requested, or a class cannot be used now.
    let one = generated(&["a.com/x"]);
    assert_eq!(
        update(
            &directory,
            &one,
            SpecificationOwner::User,
            &NONE,
            |_| false,
            plain
        )
        .unwrap()
        .changes,
        []
    );
    let unknown = UnusableClasses {
        may_include_others: true,
        ..NONE
    };
    let kept = update(
        &directory,
        &one,
        SpecificationOwner::User,
        &unknown,
        |_| true,
        plain,
    )
    .unwrap();
    assert_eq!(kept.changes, []);
    assert!(kept.retained_file_names.contains("boathook-b.com-y.json"));

    let gone = directory.join("boathook-b.com-y.json");
    assert_eq!(
        update(
            &directory,
            &one,
            SpecificationOwner::User,
            &NONE,
            |_| true,
            plain
        )
        .unwrap()
        .changes,
        [SpecificationChange::Removed(gone)]
    );
    assert_eq!(files(&directory), ["boathook-a.com-x.json"]);
}

#[test]
fn a_foreign_file_of_the_kind_is_kept_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = directory.path().join("vendor.yaml");
    fs::write(&foreign, "cdiVersion: 0.5.0\nkind: a.com/x\n").unwrap();
    let changes = update(
        directory.path(),
        &generated(&["a.com/x"]),
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap()
    .changes;
    let kind = "a.com/x".to_owned();
    assert_eq!(
        changes,
        [SpecificationChange::Conflict {
            kind,
            other_path: foreign,
            is_certain: true
        }]
    );
    assert_eq!(files(directory.path()), ["vendor.yaml"]);
}

/// The other entries are a pipe, which would block its reader, a directory, and an empty
/// file.
#[test]
fn what_is_no_specification_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.json");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(directory.path().join("directory.json")).unwrap();
    fs::write(directory.path().join("empty.json"), "").unwrap();
    let changes = update(
        directory.path(),
        &generated(&["a.com/x"]),
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap()
    .changes;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(files(directory.path()).len(), 4);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let error = update(
        &file,
        &generated(&["a.com/x"]),
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot read the directory {}", file.display())
    );
    let below = file.join("cdi");
    let error = update(
        &below,
        &generated(&["a.com/x"]),
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap_err();
    assert!(error.to_string().contains("file/cdi"), "{error}");

    // A read-only file system refuses writes of root as well.
    let read_only = Path::new("/proc/sys");
    let error = update(
        read_only,
        &generated(&["a.com/x"]),
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap_err();
    let DirectoryError::Io { path, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(path, read_only.join("boathook-a.com-x.json"));
}

#[test]
fn a_link_at_the_temporary_file_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let victim = directory.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    let path = directory.path().join("boathook-a.com-b.json");
    symlink(&victim, path.with_extension("tmp")).unwrap();
    write_file(directory.path(), &path, "text").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    assert!(path.symlink_metadata().unwrap().is_file());
}

/// A broken class keeps the files with its devices, and those that do not say whose they are. The
/// file of a class that is sound, but no longer served, goes.
#[test]
fn a_broken_class_keeps_its_own_file_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let write = |kind: &str, hooks: &str| {
        let name = super::super::file_name(kind);
        let text = format!(
            r#"{{"kind": "{kind}", "devices": [{{"name": "0", "containerEdits": {{{hooks}}}}}]}}"#
        );
        fs::write(directory.path().join(name), text).unwrap();
    };
    let hook = |class: &str| {
        format!(r#""hooks": [{{"args": ["hook", "create-runtime", "--cdi", "{class}=0"]}}]"#)
    };
    write("a.com/disabled", &hook("disabled"));
    write("a.com/broken", &hook("broken"));
    write("a.com/plain", "");
    let unusable = UnusableClasses {
        names: BTreeSet::from(["broken".to_owned()]),
        may_include_others: false,
    };
    let none = generated(&[]);
    let updated = update(
        directory.path(),
        &none,
        SpecificationOwner::User,
        &unusable,
        |_| true,
        plain,
    )
    .unwrap();
    let kept = ["boathook-a.com-broken.json", "boathook-a.com-plain.json"];
    assert_eq!(files(directory.path()), kept);
    assert_eq!(updated.retained_file_names.len(), 2);
    update(
        directory.path(),
        &none,
        SpecificationOwner::User,
        &NONE,
        |_| true,
        plain,
    )
    .unwrap();
    assert_eq!(files(directory.path()), [""; 0]);
}
