//! The index of a directory of class files: the variables that each of them could have, so
//! that a container which requests nothing does not cost the reading of all classes.
//!
//! Its lines are a file's name, its size and the variables. A line holds for a file of that
//! size that has not changed since the index was written; the others are read, as all are
//! without an index. The variables of all lines are those of all files, unless there is the
//! line [`NOT_ALL`].

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::MAX_FILE;
use crate::class;
use crate::ownership;

/// The file, in the directory of class files.
pub const INDEX: &str = ".variables";

/// Only parsing shows the variables of some file.
const NOT_ALL: &str = "*";

/// In place of a name and a size: variables beside those of the class that one extends.
const FURTHER: &str = "+ 0";

/// The text of the index of class files, of which these are names and texts. Classes that
/// have the variable of the one that they extend are not in it, nor those whose variables are
/// known only by parsing them.
pub fn index<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut lines = String::new();
    for (name, text) in files
        .into_iter()
        .filter(|(_, text)| !text.trim().is_empty())
    {
        let has_own = class::extends(text).is_none() || class::sets_variable(text);
        let _ = match class::variables(text).map(Vec::from_iter) {
            Some(own) if has_own => writeln!(lines, "{name} {} {}", text.len(), own.join(" ")),
            Some(own) if own.is_empty() => Ok(()),
            Some(own) => writeln!(lines, "{FURTHER} {}", own.join(" ")),
            None => writeln!(lines, "{NOT_ALL}"),
        };
    }
    lines
}

/// Whether the indexes say that no class of these directories has a variable for which
/// `is_set` holds, so that no file need be looked for; `false` if they cannot say it. They can
/// until a file comes, goes or is replaced. One that root edits in place is not noticed:
/// see [`stale`].
pub fn none_has(directories: &[PathBuf], is_set: impl Fn(&str) -> bool) -> bool {
    directories.iter().all(|path| {
        let directory = match ownership::Directory::open(path) {
            Ok(directory) => directory,
            Err(error) => return error.is_absent(),
        };
        let Some((changed, text)) = read(&directory) else {
            return fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        };
        let variables = |line: &str| line.split(' ').skip(2).any(&is_set);
        directory.changed() <= changed
            && !text.lines().any(|line| line == NOT_ALL || variables(line))
    })
}

/// The files that were edited in place since the index of their directory was written.
pub fn stale(directories: &[PathBuf]) -> Vec<PathBuf> {
    let directories = directories.iter().filter_map(|path| {
        let directory = ownership::Directory::open(path).ok()?;
        let index = Index::read(&directory)?;
        (directory.changed() <= index.changed).then_some((path, directory, index))
    });
    let stale = directories.flat_map(|(path, directory, index)| {
        let names = index.files.iter().map(|line| &line.name);
        let edited = names.filter(|name| index.variables(&directory, OsStr::new(name)).is_none());
        edited.map(|name| path.join(name)).collect::<Vec<_>>()
    });
    stale.collect()
}

/// The index of this directory, if it has one that only root can change, and when it was
/// written.
fn read(directory: &ownership::Directory) -> Option<((i64, i64), String)> {
    let file = directory.own_file(OsStr::new(INDEX)).ok()?;
    let metadata = file.metadata().ok()?;
    if metadata.len() > MAX_FILE {
        return None;
    }
    // Room for all of it, so that one read gets it and a second its end.
    let size = usize::try_from(metadata.len()).ok()?;
    let mut text = String::with_capacity(size + 1);
    file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(((metadata.ctime(), metadata.ctime_nsec()), text))
}

pub(super) struct Index {
    changed: (i64, i64),
    files: Vec<Line>,
}

/// The index of one file.
struct Line {
    name: String,
    size: u64,
    /// With spaces between them.
    variables: String,
}

impl Index {
    /// The index of this directory, if it has one that only root can change.
    pub(super) fn read(directory: &ownership::Directory) -> Option<Self> {
        let (changed, text) = read(directory)?;
        let files = text.lines().filter_map(line).collect();
        Some(Index { changed, files })
    }

    /// The variables of a file, if it is as the index says.
    pub(super) fn variables(
        &self,
        directory: &ownership::Directory,
        name: &OsStr,
    ) -> Option<String> {
        let line = self.files.iter().find(|line| *line.name == *name)?;
        let found = directory.root_only(name)?;
        let is_known = u64::try_from(found.st_size).ok()? == line.size
            && (found.st_ctime, found.st_ctime_nsec) <= self.changed;
        is_known.then(|| line.variables.clone())
    }
}

fn line(text: &str) -> Option<Line> {
    let (name, rest) = text.split_once(' ')?;
    let (size, variables) = rest.split_once(' ')?;
    name.ends_with(".toml").then_some(Line {
        name: name.to_owned(),
        size: size.parse().ok()?,
        variables: variables.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use super::super::{ClassSource, each_source};
    use super::*;

    const A: &str = "request = { env = 'A_DEVICES', capabilities_env = 'A_CAPS' }\n";

    fn sources(directory: &Path) -> Vec<ClassSource> {
        let found = each_source(&[directory.to_owned()]).unwrap();
        found.into_iter().map(Result::unwrap).collect()
    }

    /// The classes that a container with this variable could request.
    fn mentioning(directory: &Path, variable: &str) -> Vec<String> {
        let found = sources(directory).into_iter();
        let found = found.filter(|source| source.mentions(|name| name == variable));
        found.map(|source| source.name.to_string()).collect()
    }

    fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(root.path().join(name), text).unwrap();
        }
        fs::write(root.path().join(INDEX), index(files.iter().copied())).unwrap();
        root
    }

    /// Longer than the kernel's clock for files takes from one time to the next.
    fn later() {
        thread::sleep(Duration::from_millis(30));
    }

    #[test]
    fn a_file_is_not_read_for_a_container_without_its_variables() {
        let root = written(&[("a.toml", A), ("b.toml", "env = 'B_DEVICES'\n")]);
        let found = sources(root.path());
        assert!(found.iter().all(|source| source.text.is_empty()));
        assert_eq!(mentioning(root.path(), "A_DEVICES"), ["a"]);
        assert_eq!(mentioning(root.path(), "A_CAPS"), [""; 0]);
        // It is read when it is parsed.
        let error = found[1].parse().unwrap_err().to_string();
        assert!(error.contains("b.toml") && error.contains("env"), "{error}");
    }

    #[test]
    fn a_file_that_differs_from_the_index_is_read() {
        let root = written(&[("a.toml", A), ("b.toml", "env = 'B_DEVICES'\n")]);
        later();
        // Of the same size.
        fs::write(root.path().join("b.toml"), "env = 'C_DEVICES'\n").unwrap();
        fs::write(root.path().join("d.toml"), "env = 'D_DEVICES'\n").unwrap();
        for (variable, classes) in [
            ("A_DEVICES", &["a"][..]),
            ("B_DEVICES", &[]),
            ("C_DEVICES", &["b"]),
            ("D_DEVICES", &["d"]),
        ] {
            assert_eq!(mentioning(root.path(), variable), classes, "{variable}");
        }
        // And one that others can change, and what is refused for that.
        let root = written(&[("a.toml", A)]);
        let file = root.path().join("a.toml");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        fs::write(root.path().join(INDEX), index([("a.toml", A)])).unwrap();
        let found = sources(root.path());
        assert_eq!(found[0].text, A);
        assert!(found[0].parse().unwrap_err().to_string().contains("chmod"));
    }

    #[test]
    fn a_class_that_extends_another_is_read_with_it() {
        const B: &str = "extends = 'a'\nversion = 1\n[request]\nenv = 'B_DEVICES'\n";
        let [shipped, local] = [
            written(&[("a.toml", A), ("b.toml", B)]),
            written(&[("a.toml", "resource = 1\n")]),
        ];
        assert_eq!(mentioning(shipped.path(), "B_DEVICES"), ["b"]);
        assert_eq!(mentioning(shipped.path(), "A_DEVICES"), ["a"]);
        let directories = [shipped.path(), local.path()].map(Path::to_owned);
        let parsed = || {
            let found = each_source(&directories).unwrap();
            let b = found.into_iter().flatten().find(|b| b.name.as_str() == "b");
            let b = b.unwrap();
            assert!(b.text.is_empty() && b.bases.is_empty(), "{b:?}");
            b.parse().unwrap_err().to_string()
        };
        // The one that masks the other of the name.
        let error = parsed();
        assert!(
            error.contains("a.toml") && error.contains("resource"),
            "{error}"
        );
        fs::write(local.path().join("a.toml"), "").unwrap();
        let error = parsed();
        assert!(error.contains("an empty one disables it"), "{error}");
    }

    #[test]
    fn an_index_that_others_can_change_or_that_is_none_is_not_used() {
        let root = written(&[("a.toml", A)]);
        let file = root.path().join(INDEX);
        fs::write(&file, "a.toml 60 X_DEVICES\n\u{1}\na.toml\n a.toml x\n").unwrap();
        assert_eq!(mentioning(root.path(), "A_DEVICES"), ["a"]);
        fs::write(&file, format!("a.toml {} X_DEVICES\n", A.len())).unwrap();
        assert_eq!(mentioning(root.path(), "A_DEVICES"), [""; 0]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(mentioning(root.path(), "A_DEVICES"), ["a"]);
    }

    #[test]
    fn an_index_says_of_its_whole_directory_that_nothing_is_requested() {
        const B: &str = "extends = 'a'\n[request]\nlists_env = 'B_LISTS'\n";
        let root = written(&[("a.toml", A), ("b.toml", B), ("empty.toml", " ")]);
        let own = tempfile::tempdir().unwrap();
        let own_file = own.path().join("a.toml");
        let directories = [root.path(), own.path(), Path::new("/absent/class/files")];
        let directories = directories.map(Path::to_owned);
        let without = |set: &str| none_has(&directories, |name| name == set);
        assert!(without("OTHER") && !without("A_DEVICES") && !without("B_LISTS"));
        fs::write(&own_file, A).unwrap();
        assert!(!without("OTHER"), "an own class without an index");
        fs::remove_file(&own_file).unwrap();
        assert!(without("OTHER"));
        // What is edited in place is reported.
        later();
        let edited = root.path().join("a.toml");
        fs::write(&edited, A.replace("A_", "C_")).unwrap();
        assert!(without("C_DEVICES"));
        assert_eq!(stale(&directories), [edited]);
        // A file that is replaced, and one that is new, make the index one of files alone.
        let new = root.path().join("new");
        fs::write(&new, A.replace("A_", "D_")).unwrap();
        fs::rename(&new, root.path().join("a.toml")).unwrap();
        assert!(!without("OTHER") && !without("D_DEVICES"));
        assert!(stale(&directories).is_empty());
        let others = written(&[("a.toml", A), ("c.toml", "[device]\nenv = { X = 'x' }\n")]);
        assert!(!none_has(&[others.path().to_owned()], |_| false));
        let is_closed = |mode| {
            let root = written(&[("a.toml", A)]);
            let index = root.path().join(INDEX);
            fs::set_permissions(index, fs::Permissions::from_mode(mode)).unwrap();
            none_has(&[root.path().to_owned()], |_| false)
        };
        assert!(is_closed(0o644) && !is_closed(0o666));
    }

    /// Also one that extends a class of the index.
    #[test]
    fn what_only_parsing_shows_is_not_in_the_index() {
        let files = [
            ("a.toml", A),
            ("b.toml", "extends = 'a'\n"),
            ("c.toml", "[device]\nenv = { X = 'x' }\n"),
            ("d.toml", "\n"),
        ];
        let line = format!("a.toml {} A_DEVICES\n", A.len());
        assert_eq!(index(files), format!("{line}{NOT_ALL}\n"));
        let root = written(&files);
        assert_eq!(mentioning(root.path(), "A_DEVICES"), ["a", "b", "c"]);
        assert_eq!(mentioning(root.path(), "B_DEVICES"), ["c"]);
    }
}
