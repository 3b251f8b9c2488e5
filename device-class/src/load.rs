//! Class files: where they are, which of them count, and which of them have to
//! be read for a request.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::class::{DeviceClass, plain_names};
use crate::name::ClassName;
use crate::strict_toml::FileError;

/// The largest class file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A class file as text, not parsed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSource {
    /// The class: the file's name without `.toml`.
    pub name: ClassName,
    /// The file.
    pub path: PathBuf,
    text: String,
}

impl ClassSource {
    /// One class file.
    ///
    /// # Errors
    /// The file can't be read, is too large or not UTF-8, or its name is not
    /// `CLASS.toml`.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let whole = |message: String| FileError::whole(path, message);
        let stem = path.file_name().and_then(|name| name.to_str());
        let stem = stem.and_then(|name| name.strip_suffix(".toml"));
        let stem = stem.ok_or_else(|| whole("a class file is named CLASS.toml".into()))?;
        let name = ClassName::try_from(stem.to_owned()).map_err(|e| whole(e.to_string()))?;
        // Room for most class files in one read.
        let mut text = String::with_capacity(8192);
        fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(|error| whole(format!("can't be read: {error}")))?;
        if text.len() as u64 > MAX_FILE {
            return Err(whole(format!("is larger than {MAX_FILE} bytes")));
        }
        Ok(ClassSource {
            name,
            path: path.into(),
            text,
        })
    }

    /// Whether the class could have one of the variables that `is_set` knows as
    /// its own. Only a class whose text mentions a name that a container has
    /// needs to be parsed.
    pub fn mentions(&self, is_set: impl Fn(&str) -> bool) -> bool {
        plain_names(&self.text).any(is_set)
    }

    /// Reads the class.
    ///
    /// # Errors
    /// The text breaks a rule of the schema.
    pub fn parse(&self) -> Result<DeviceClass, FileError> {
        DeviceClass::parse(self.name.clone(), &self.path, &self.text)
    }
}

/// The class files of several directories, sorted by name. A file masks one of
/// the same name in an earlier directory; an empty file masks it away. A
/// directory that does not exist has no files.
///
/// # Errors
/// A directory or a file in it can't be read.
pub fn sources(directories: &[PathBuf]) -> Result<Vec<ClassSource>, FileError> {
    each_source(directories)?.into_iter().collect()
}

/// The same, with an error for each file that can't be read. Such a file still
/// masks another.
///
/// # Errors
/// A directory can't be read: what it masks is not known.
pub fn each_source(
    directories: &[PathBuf],
) -> Result<Vec<Result<ClassSource, FileError>>, FileError> {
    let mut files = BTreeMap::new();
    for directory in directories {
        let unreadable = |error| FileError::whole(directory, format!("can't be read: {error}"));
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().map(ToOwned::to_owned).unwrap_or_default();
            if path.extension().is_some_and(|end| end == "toml")
                && !name.as_encoded_bytes().starts_with(b".")
            {
                files.insert(name, path);
            }
        }
    }
    let sources = files.into_values().map(|path| ClassSource::read(&path));
    Ok(sources
        .filter(|source| !source.as_ref().is_ok_and(|s| s.text.trim().is_empty()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_directories_mask_earlier_ones() {
        let root = tempfile::tempdir().unwrap();
        let [shipped, local] = ["shipped", "local"].map(|name| root.path().join(name));
        for (directory, file, text) in [
            (&shipped, "a.toml", "shipped a"),
            (&shipped, "b.toml", "shipped b"),
            (&shipped, "c.toml", "shipped c"),
            (&shipped, "README.md", "no class"),
            (&shipped, ".hidden.toml", "no class"),
            (&local, "b.toml", "local b"),
            (&local, "c.toml", ""),
        ] {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join(file), text).unwrap();
        }
        let found = sources(&[shipped, local, root.path().join("absent")]).unwrap();
        let texts: Vec<&str> = found.iter().map(|source| source.text.as_str()).collect();
        assert_eq!(texts, ["shipped a", "local b"]);
    }

    #[test]
    fn a_file_that_can_not_be_read_is_an_error_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let [shipped, local] = ["shipped", "local"].map(|name| root.path().join(name));
        fs::create_dir_all(&shipped).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(shipped.join(format!("{name}.toml")), "shipped").unwrap();
        }
        fs::create_dir_all(local.join("b.toml")).unwrap();
        fs::write(local.join("d d.toml"), "").unwrap();
        fs::write(local.join("e.toml"), b"\xff").unwrap();
        let directories = [shipped, local.clone()];
        let brief = each_source(&directories)
            .unwrap()
            .into_iter()
            .map(|source| match source {
                Ok(source) => source.name.to_string(),
                Err(error) => error
                    .to_string()
                    .replace(&root.path().display().to_string(), ""),
            });
        assert_eq!(
            brief.collect::<Vec<_>>(),
            [
                "a",
                "/local/b.toml: can't be read: Is a directory (os error 21)",
                "c",
                "/local/d d.toml: class name `d d` may not have the character ' '; allowed are a-z A-Z 0-9 - _ .",
                "/local/e.toml: can't be read: stream did not contain valid UTF-8",
            ]
        );
        assert!(sources(&directories).is_err());
        assert!(
            each_source(&[local.join("e.toml")]).is_err(),
            "no directory"
        );
    }
}
