//! The class index gives the same classes as the class files, and it is not used for files that have
//! changed since.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use device_class::load::{self, CLASS_INDEX_NAME, ClassFile, build_index, list_unindexed_classes};
use nix::sys::stat::stat;

use crate::shipped::root;

/// The directory `shipped` of class files with an index, and the directory `own` of an
/// administrator.
struct Classes {
    root: tempfile::TempDir,
}

const CARD: &str = "version = 1\nresource = \"example.com/card\"\nrequest.env = \"CARDS\"\n\
                    discover = [{ path = \"/dev/card{index:number}\" }]\n\
                    device = { id = \"card-{index}\", nodes = [\"/dev/card{index}\"] }\n";
const SMALL: &str = "extends = \"card\"\nresource = \"example.com/small\"\n\
                     request.env = \"SMALL\"\n";

impl Classes {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["shipped", "own"] {
            let directory = root.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        }
        let classes = Classes { root };
        for (name, text) in files {
            classes.write(&format!("shipped/{name}"), text);
        }
        classes.write_index();
        classes
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
        fs::set_permissions(self.path(path), Permissions::from_mode(0o644)).unwrap();
    }

    fn index(&self) -> PathBuf {
        self.path("shipped").join(CLASS_INDEX_NAME)
    }

    fn write_index(&self) {
        let files = class_files(&self.path("shipped"));
        sleep(Duration::from_millis(20));
        self.write(&format!("shipped/{CLASS_INDEX_NAME}"), &build_index(&files));
    }

    /// Each class as text, or its error, by the files and the index.
    fn loaded(&self) -> Vec<String> {
        load_classes(&[self.path("shipped"), self.path("own")])
    }

    /// The same without the index.
    fn loaded_from_files(&self) -> Vec<String> {
        let aside = self.path("aside");
        fs::rename(self.index(), &aside).unwrap();
        let loaded = self.loaded();
        fs::rename(aside, self.index()).unwrap();
        loaded
    }
}

fn class_files(directory: &Path) -> Vec<ClassFile> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    let file = |path: PathBuf| ClassFile {
        name: path.file_name().unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(&path).unwrap(),
        stat: stat(&path).unwrap(),
    };
    paths.map(file).collect()
}

fn load_classes(directories: &[PathBuf]) -> Vec<String> {
    let sources = load::read_each_source(directories).unwrap();
    let classes = sources.into_iter().map(|source| source?.parse());
    let text = |class: Result<_, _>| match class {
        Ok(class) => format!("{class:#?}"),
        Err(error) => format!("{error}"),
    };
    classes.map(text).collect()
}

/// Replaces in the index what the hook reads from it, so that it is seen whether it is used.
fn mark(classes: &Classes) {
    let index = fs::read_to_string(classes.index()).unwrap();
    let marked = index.replace("/dev/card{", "/dev/kard{");
    assert_ne!(marked, index);
    classes.write(&format!("shipped/{CLASS_INDEX_NAME}"), &marked);
}

#[test]
fn a_shipped_class_of_the_index_is_that_of_its_file() {
    let files = class_files(&root().join("classes"));
    let files: Vec<_> = files.iter().map(|it| (&*it.name, &*it.text)).collect();
    assert!(files.len() > 60, "{}", files.len());
    let classes = Classes::new(&files);
    let index = fs::read_to_string(classes.index()).unwrap();
    assert_eq!(index.lines().count(), files.len() + 1);
    let (loaded, expected) = (classes.loaded(), classes.loaded_from_files());
    assert_eq!(loaded.len(), expected.len());
    for (loaded, expected) in loaded.iter().zip(&expected) {
        assert!(loaded == expected, "{loaded}\n{expected}");
    }

    // Each class was read from the index, not from its file.
    const KEY: &str = "\"description\":\"";
    let mut marked = index.clone().into_bytes();
    for (offset, _) in index.match_indices(KEY) {
        marked[offset + KEY.len()] = b'~';
    }
    fs::write(classes.index(), marked).unwrap();
    let loaded = classes.loaded();
    let indexed = loaded.iter().filter(|it| it.contains("description: \"~"));
    assert_eq!(indexed.count(), files.len());
}

#[test]
fn the_index_is_used_while_the_files_are_those_of_which_it_was_made() {
    let files = [("card.toml", CARD), ("small.toml", SMALL)];
    /// The name of a change, the change, and the number of the two classes that are then read from
    /// the index.
    type Change = (&'static str, fn(&Classes), usize);
    let changes: [Change; 14] = [
        ("nothing", |_| {}, 2),
        (
            "a file of the same size",
            |classes| {
                classes.write("shipped/card.toml", &CARD.replace("CARDS", "CARDZ"));
            },
            0,
        ),
        (
            "the mode of a file",
            |classes| {
                let mode = Permissions::from_mode(0o600);
                fs::set_permissions(classes.path("shipped/small.toml"), mode).unwrap();
            },
            1,
        ),
        (
            "a file that others can write",
            |classes| {
                let mode = Permissions::from_mode(0o666);
                fs::set_permissions(classes.path("shipped/small.toml"), mode).unwrap();
            },
            1,
        ),
        (
            "a file that is a link",
            |classes| {
                fs::rename(
                    classes.path("shipped/small.toml"),
                    classes.path("own/moved"),
                )
                .unwrap();
                symlink("../own/moved", classes.path("shipped/small.toml")).unwrap();
            },
            1,
        ),
        (
            "a file that is gone",
            |classes| {
                fs::remove_file(classes.path("shipped/small.toml")).unwrap();
            },
            1,
        ),
        (
            "a file of an administrator",
            |classes| {
                classes.write("own/other.toml", &CARD.replace("CARDS", "OTHER"));
            },
            2,
        ),
        (
            "a file that replaces the extended one",
            |classes| {
                classes.write("own/card.toml", &CARD.replace("/dev/card", "/dev/own"));
            },
            0,
        ),
        (
            "a file that replaces the extending one",
            |classes| {
                classes.write("own/small.toml", SMALL);
            },
            1,
        ),
        (
            "an empty file that disables the extended one",
            |classes| {
                classes.write("own/card.toml", "");
            },
            0,
        ),
        (
            "an index of another version",
            |classes| {
                let index = fs::read_to_string(classes.index()).unwrap();
                fs::write(
                    classes.index(),
                    index.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1),
                )
                .unwrap();
            },
            0,
        ),
        (
            "an index that others can write",
            |classes| {
                fs::set_permissions(classes.index(), Permissions::from_mode(0o666)).unwrap();
            },
            0,
        ),
        (
            "an index without its end",
            |classes| {
                let index = fs::read_to_string(classes.index()).unwrap();
                fs::write(classes.index(), &index[..index.len() - 20]).unwrap();
            },
            1,
        ),
        (
            "an index of zeros",
            |classes| {
                let length = usize::try_from(fs::metadata(classes.index()).unwrap().len()).unwrap();
                fs::write(classes.index(), vec![0; length]).unwrap();
            },
            0,
        ),
    ];
    for (change, make, used) in changes {
        let classes = Classes::new(&files);
        make(&classes);
        assert_eq!(classes.loaded(), classes.loaded_from_files(), "{change}");

        let classes = Classes::new(&files);
        mark(&classes);
        make(&classes);
        let loaded = classes.loaded();
        let marked = loaded.iter().filter(|it| it.contains("/dev/kard"));
        assert_eq!(marked.count(), used, "{change}: {loaded:#?}");
    }
}

#[test]
fn an_index_with_a_zero_in_place_of_any_byte_is_not_used_there() {
    let classes = Classes::new(&[("card.toml", CARD), ("small.toml", SMALL)]);
    let index = fs::read(classes.index()).unwrap();
    for offset in 0..index.len() {
        let mut damaged = index.clone();
        damaged[offset] = 0;
        fs::write(classes.index(), damaged).unwrap();
        let loaded = classes.loaded();
        assert_eq!(loaded.len(), 2);
        assert_eq!(loaded, classes.loaded_from_files(), "{offset}");
    }
}

#[test]
fn a_file_with_a_mistake_is_not_in_the_index() {
    let classes = Classes::new(&[
        ("card.toml", CARD),
        ("broken.toml", "version = 1\nnoodles = 2\n"),
        ("orphan.toml", "extends = \"none\"\n"),
        ("empty.toml", ""),
    ]);
    let index = fs::read_to_string(classes.index()).unwrap();
    assert_eq!(index.lines().count(), 2, "{index}");
    let loaded = classes.loaded();
    assert_eq!(loaded, classes.loaded_from_files());
    assert!(loaded[0].contains("noodles"), "{loaded:#?}");
}

#[test]
fn a_container_requests_an_indexed_class_by_its_variable() {
    let classes = Classes::new(&[("card.toml", CARD), ("small.toml", SMALL)]);
    let sources = load::read_each_source(&[classes.path("shipped")]).unwrap();
    for (variable, requested) in [("CARDS", "card"), ("SMALL", "small"), ("PATH", "")] {
        let sources = sources.iter().flatten();
        let requested_sources = sources.filter(|it| it.may_be_requested(|name| name == variable));
        let names: Vec<_> = requested_sources.map(|it| it.name.as_str()).collect();
        assert_eq!(names.join(" "), requested, "{variable}");
    }
    let [card, small] = &sources[..] else {
        panic!()
    };
    let [card, small] = [card, small].map(|source| source.as_ref().unwrap());
    assert!(small.extends(&card.name) && !card.extends(&small.name));
    assert!(card.has_same_text(card) && !card.has_same_text(small));
}

#[test]
fn the_classes_that_an_index_lacks_are_listed() {
    let files = [
        ("card.toml", CARD),
        ("small.toml", SMALL),
        ("broken.toml", "version = 1\nnoodles = 2\n"),
        ("empty.toml", ""),
    ];
    /// The name of a change, the change, and the classes that the index then lacks.
    type Change = (&'static str, fn(&Classes), &'static str);
    let changes: [Change; 7] = [
        ("nothing", |_| {}, ""),
        ("a byte of the index", mark, "card small"),
        (
            "a file that another one extends",
            |classes| classes.write("shipped/card.toml", &CARD.replace("/dev/card", "/dev/own")),
            "card small",
        ),
        (
            "the time of a file",
            |classes| {
                let mode = Permissions::from_mode(0o600);
                fs::set_permissions(classes.path("shipped/small.toml"), mode).unwrap();
            },
            "small",
        ),
        (
            "one more file",
            |classes| classes.write("shipped/new.toml", CARD),
            "new",
        ),
        (
            "no index",
            |classes| fs::remove_file(classes.index()).unwrap(),
            "card small",
        ),
        (
            "an index that others can write",
            |classes| {
                fs::set_permissions(classes.index(), Permissions::from_mode(0o666)).unwrap();
            },
            "card small",
        ),
    ];
    for (change, make, expected) in changes {
        let classes = Classes::new(&files);
        make(&classes);
        let names = list_unindexed_classes(&classes.path("shipped")).unwrap();
        let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{change}");
    }
    let absent = list_unindexed_classes(Path::new("/nonexistent/classes.d"));
    assert_eq!(absent.unwrap(), []);
}
