//! Loads class files from several directories. If two directories have a file of the same name, the
//! file in the later directory is used. For a container, only the files of classes that it may
//! request are parsed.

mod bases;
mod class_index;
mod unusable_files;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host_files::rooted_path::RegularFile;

use crate::class::{self, DeviceClass};
use crate::name::ClassName;
use crate::ownership;
use crate::strict_toml::{self, FileError, Layer};
use class_index::{ClassIndex, IndexedClass};

pub use class_index::{CLASS_INDEX_NAME, ClassFile, build_index, list_unindexed_classes};
pub use unusable_files::{is_device_list_variable, is_requested_by_variable};

/// The maximum size of a class file in bytes. A larger file cannot be used.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The maximum number of unusable class files that are returned. A file is unusable if it cannot be
/// read, or if users other than root can change it. A local user may be able to create many such
/// files, and without the limit each would delay the start of every container.
const MAX_UNUSABLE_FILES: usize = 256;

/// A class file and its bases, which are the files that it extends, before they are parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassSource {
    /// The name of the class, which is the name of the file without `.toml`.
    pub name: ClassName,
    pub path: PathBuf,
    content: ClassContent,
    /// The files that this class extends. The class file extends the first one, and each of them
    /// extends the next one. The list is empty for a class that is read from the class index,
    /// because the index has it merged.
    bases: Vec<BaseFile>,
    /// The reason why the class cannot be used: users other than root can change one of its files,
    /// or a file that it extends is missing. [`ClassSource::parse`] returns it as the error.
    fault: Option<FileError>,
}

/// The content of a class file: its text, or a reference into the class index.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ClassContent {
    /// The text of the file.
    Text(String),
    /// A reference to the class in the class index of its directory. There it is already merged
    /// with the files that it extends.
    Indexed(IndexedClass),
}

/// A class file that another class file extends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BaseFile {
    path: PathBuf,
    text: String,
}

impl ClassSource {
    /// Reads one class file without checking its owner and mode. A class that the file extends is
    /// searched in the file's own directory, and then in `directories`, where a later directory
    /// takes precedence.
    pub fn read(path: &Path, directories: &[PathBuf]) -> Result<Self, FileError> {
        let mut source = Self::read_without_bases(path)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        source.add_bases(|name| {
            let base_path = parent.join(format!("{name}.toml"));
            if base_path.symlink_metadata().is_ok() {
                return Some(Self::read_without_bases(&base_path));
            }
            bases::find_source(directories, name)
        });
        Ok(source)
    }

    fn read_without_bases(path: &Path) -> Result<Self, FileError> {
        Self::read_opened_file(path.into(), || RegularFile::open(path))
    }

    /// Reads one class file from `directory`. If users other than root can change the file, its
    /// text is not read, and [`ClassSource::parse`] returns an error.
    fn read_in_directory(directory: &ClassDirectory, name: &OsStr) -> Result<Self, FileError> {
        let path = directory.path.join(name);
        match directory.open_file(name) {
            Ok(file) => Self::read_opened_file(path, || Ok(file)),
            Err(fault) => {
                RegularFile::open(&path).map_err(|error| read_error(&path, error))?;
                let fault = FileError::whole(&path, fault);
                Ok(ClassSource {
                    name: parse_class_name(&path)?,
                    path,
                    content: ClassContent::Text(String::new()),
                    bases: Vec::new(),
                    fault: Some(fault),
                })
            }
        }
    }

    fn read_opened_file(
        path: PathBuf,
        open: impl FnOnce() -> io::Result<RegularFile>,
    ) -> Result<Self, FileError> {
        let name = parse_class_name(&path)?;
        let to_file_error = |message: String| FileError::whole(&path, message);
        let to_read_error = |error: io::Error| read_error(&path, error);
        let bytes = open()
            .and_then(|file| file.read(MAX_FILE_BYTES + 1))
            .map_err(to_read_error)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(to_file_error(format!(
                "is larger than {MAX_FILE_BYTES} bytes"
            )));
        }
        let text =
            String::from_utf8(bytes).map_err(|error| to_read_error(io::Error::other(error)))?;
        Ok(ClassSource {
            name,
            path,
            content: ClassContent::Text(text),
            bases: Vec::new(),
            fault: None,
        })
    }

    /// Returns the class from the index of `directory`. Returns `None` if the index does not have
    /// it, or if the class file has changed since the index was written.
    fn find_in_index(directory: &ClassDirectory, index: &ClassIndex, name: &OsStr) -> Option<Self> {
        let path = directory.path.join(name);
        let class_name = parse_class_name(&path).ok()?;
        let stat = directory.open_result.as_ref().ok()?.stat_file(name)?;
        Some(ClassSource {
            content: ClassContent::Indexed(index.find_class(&class_name, &stat)?),
            name: class_name,
            path,
            bases: Vec::new(),
            fault: None,
        })
    }

    /// Returns the source with the text of its file. Reads the file if the source only refers to
    /// the class index.
    fn into_text(self) -> Result<Self, FileError> {
        match (&self.content, self.path.parent(), self.path.file_name()) {
            (ClassContent::Indexed(class), Some(path), Some(name)) => {
                let open_result = Ok(Arc::clone(class.directory()));
                Self::read_in_directory(&ClassDirectory { path, open_result }, name)
            }
            _ => Ok(self),
        }
    }

    /// Returns the text of the file. Returns an empty text if the class is read from the class
    /// index, because then the file was not read.
    fn text(&self) -> &str {
        match &self.content {
            ClassContent::Text(text) => text,
            ClassContent::Indexed(_) => "",
        }
    }

    /// Returns whether the class files of two classes have the same text. Returns `false` if one of
    /// them cannot be read.
    pub fn has_same_text(&self, other: &Self) -> bool {
        let [text, other_text] = [self, other].map(|source| source.clone().into_text().ok());
        match (text, other_text) {
            (Some(source), Some(other)) => source.text() == other.text(),
            _ => false,
        }
    }

    /// Returns whether the file is empty. An empty file disables the class of this name that an
    /// earlier directory defines.
    pub fn is_empty(&self) -> bool {
        let is_text = matches!(self.content, ClassContent::Text(_));
        self.fault.is_none() && is_text && self.text().trim().is_empty()
    }

    /// Returns whether the class extends the class of this name, directly or indirectly.
    pub fn extends(&self, name: &ClassName) -> bool {
        if let ClassContent::Indexed(class) = &self.content {
            return class.bases().iter().any(|base| base == name.as_str());
        }
        let mut bases = self.bases.iter();
        bases.any(|base| parse_class_name(&base.path).is_ok_and(|base_name| base_name == *name))
    }

    /// Returns whether a container might request this class. `is_set` returns whether a variable is
    /// set in the container. If the result is `false`, the container does not request the class by
    /// a variable. If it is `true`, the caller has to parse the class to find out.
    pub fn may_be_requested(&self, is_set: impl Fn(&str) -> bool) -> bool {
        if let ClassContent::Indexed(class) = &self.content {
            return is_set(class.variable());
        }
        let bases = self.bases.iter().map(|base| base.text.as_str());
        let mut texts = [self.text()].into_iter().chain(bases);
        self.fault.is_some() || texts.any(|text| class::may_be_requested(text, &is_set))
    }

    /// Returns whether the file disables its class (`enabled = false`), and a file in another
    /// directory replaces or disables the class that it extends. Such a class may be invalid,
    /// because the tables and lists that it changes may be missing.
    pub(crate) fn is_disabled_without_base(&self) -> bool {
        let Some(base_name) = class::find_extended_class(self.text()) else {
            return false;
        };
        // The file of the extended class in the same directory, which was shipped together with
        // this class. An administrator's class extends a class of another directory instead, and a
        // mistake in it must be reported.
        let shipped_base = self.path.with_file_name(format!("{base_name}.toml"));
        let table = self.text().parse::<toml::Table>().ok();
        let value = table.as_ref().and_then(|table| table.get("enabled"));
        let is_extended = self
            .bases
            .first()
            .is_some_and(|base| base.path == shipped_base);
        let is_replaced = !is_extended && shipped_base.is_file();
        is_replaced && value.and_then(toml::Value::as_bool) == Some(false)
    }

    /// Parses the class, or reads it from the class index.
    ///
    /// # Errors
    /// Users other than root can change the file or a file that it extends, an extended file is
    /// missing, or the text breaks a rule of the schema.
    pub fn parse(&self) -> Result<DeviceClass, FileError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        match &self.content {
            ClassContent::Text(_) => DeviceClass::from_layers(self.name.clone(), &self.layers()),
            ClassContent::Indexed(class) => match class.read() {
                Some(spec) => Ok(DeviceClass::from_valid_spec(self.name.clone(), spec)),
                None => self.reread()?.parse(),
            },
        }
    }

    /// Reads the class file and the files that it extends, if the class cannot be read from the
    /// index because the index is damaged.
    fn reread(&self) -> Result<Self, FileError> {
        let mut source = self.clone().into_text()?;
        source.add_bases_of_directory();
        Ok(source)
    }

    /// Adds the files that this class extends. They are searched only in its own directory, because
    /// the class index of a directory merges only files of this directory.
    fn add_bases_of_directory(&mut self) {
        let directories = self.path.parent().map(Path::to_owned);
        self.add_bases(|name| bases::find_source(directories.as_slice(), name));
    }

    /// Returns the class, merged with the files that it extends, as JSON for the class index.
    fn convert_to_json(&self) -> Option<serde_json::Value> {
        strict_toml::convert_to_json(&self.layers()).ok()?
    }

    /// Returns the class file and the files that it extends, beginning with the class file itself.
    fn layers(&self) -> Vec<Layer<'_>> {
        let bases = self.bases.iter();
        let files = bases.map(|base| (base.path.as_path(), base.text.as_str()));
        let files = [(self.path.as_path(), self.text())]
            .into_iter()
            .chain(files);
        let layers = files.map(|(path, text)| {
            let extends = class::find_extended_class(text);
            Layer {
                path,
                text,
                extends,
            }
        });
        layers.collect()
    }
}

fn read_error(path: &Path, error: io::Error) -> FileError {
    FileError::whole(path, format!("cannot be read: {error}"))
}

/// Returns the class name of a class file: the file name without `.toml`, such as `npu` for
/// `npu.toml`.
fn parse_class_name(file: &Path) -> Result<ClassName, FileError> {
    let to_file_error = |message: String| FileError::whole(file, message);
    let stem = file.file_name().and_then(|name| name.to_str());
    let stem = stem.and_then(|name| name.strip_suffix(".toml"));
    let stem = stem.ok_or_else(|| to_file_error("a class file is named CLASS.toml".into()))?;
    ClassName::try_from(stem.to_owned()).map_err(|error| to_file_error(error.to_string()))
}

/// Reads the class files of several directories, sorted by name. If two directories have a file of
/// the same name, the later directory wins, and an empty file there disables the class. A directory
/// that does not exist counts as empty.
pub fn read_sources(directories: &[PathBuf]) -> Result<Vec<ClassSource>, FileError> {
    read_each_source(directories)?.into_iter().collect()
}

/// Reads the class files as [`read_sources`] does, but returns a separate result for each file. A
/// file that cannot be read still replaces the file of the same name in an earlier directory.
///
/// # Errors
/// A directory cannot be read. It might have files that replace those of earlier directories.
pub fn read_each_source(
    directories: &[PathBuf],
) -> Result<Vec<Result<ClassSource, FileError>>, FileError> {
    // The key is a file name. The value is the last directory that has the file, and whether an
    // earlier directory also has a file of this name.
    let mut files: BTreeMap<OsString, (&IndexedDirectory<'_>, bool)> = BTreeMap::new();
    let directories = directories
        .iter()
        .filter_map(|path| ClassDirectory::open(path));
    let directories: Vec<IndexedDirectory> = directories.map(IndexedDirectory::new).collect();
    for indexed_directory in &directories {
        let directory = &indexed_directory.directory;
        for name in list_class_file_names(directory.path)? {
            let replaces_other_file = files.contains_key(&name);
            files.insert(name, (indexed_directory, replaces_other_file));
        }
    }
    let mut unusable_count = 0;
    let mut sources = Vec::with_capacity(files.len());
    for (name, (directory, replaces_other_file)) in &files {
        let source = directory.read_source(name);
        if source.as_ref().is_ok_and(ClassSource::is_empty) {
            continue;
        }
        let is_usable = source.as_ref().is_ok_and(|source| source.fault.is_none());
        unusable_count += usize::from(!is_usable);
        // A file that replaces another one is always kept. Otherwise, after too many unusable
        // files, a class of an earlier directory would disappear without an error.
        if is_usable || *replaces_other_file || unusable_count <= MAX_UNUSABLE_FILES {
            sources.push(source);
        }
    }
    bases::add_bases(&mut sources);
    Ok(sources)
}

/// Returns the names of the class files in a directory, in no order.
fn list_class_file_names(path: &Path) -> Result<Vec<OsString>, FileError> {
    let to_file_error = |error| FileError::whole(path, format!("cannot be read: {error}"));
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(to_file_error)? {
        let name = entry.map_err(to_file_error)?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.ends_with(b".toml") && !bytes.starts_with(b".") {
            names.push(name);
        }
    }
    Ok(names)
}

/// A directory of class files, and its class index if it has one.
struct IndexedDirectory<'a> {
    directory: ClassDirectory<'a>,
    index: Option<ClassIndex>,
}

impl<'a> IndexedDirectory<'a> {
    fn new(directory: ClassDirectory<'a>) -> Self {
        let open_directory = directory.open_result.as_ref().ok();
        let index = open_directory.and_then(ClassIndex::open);
        IndexedDirectory { directory, index }
    }

    fn read_source(&self, name: &OsStr) -> Result<ClassSource, FileError> {
        let index = self.index.as_ref();
        let indexed_source =
            index.and_then(|index| ClassSource::find_in_index(&self.directory, index, name));
        indexed_source.map_or_else(|| ClassSource::read_in_directory(&self.directory, name), Ok)
    }
}

struct ClassDirectory<'a> {
    path: &'a Path,
    /// The open directory, or the reason why the files in it cannot be used.
    open_result: Result<Arc<ownership::TrustedDirectory>, String>,
}

impl<'a> ClassDirectory<'a> {
    /// Opens a directory. Returns `None` if the directory does not exist. If the directory cannot
    /// be used, for example because users other than root can change it, stores the reason.
    fn open(path: &'a Path) -> Option<Self> {
        let open_result = match ownership::TrustedDirectory::open(path) {
            Err(error) if error.is_absent() => return None,
            result => result.map(Arc::new).map_err(|error| error.to_string()),
        };
        Some(ClassDirectory { path, open_result })
    }

    /// Opens a file in the directory. Fails if users other than root can change the file.
    fn open_file(&self, name: &OsStr) -> Result<RegularFile, String> {
        let directory = self.open_result.as_deref().map_err(String::clone)?;
        directory
            .open_file(name)
            .map_err(|error| error.describe_without_path(&self.path.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        let found = read_sources(&[shipped, local, root.path().join("absent")]).unwrap();
        let texts: Vec<&str> = found.iter().map(|source| source.text()).collect();
        assert_eq!(texts, ["shipped a", "local b"]);
    }

    #[test]
    fn a_file_that_others_can_change_masks_and_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let [shipped, local] = ["shipped", "local"].map(|name| root.path().join(name));
        for (path, mode) in [(&shipped, 0o755), (&local, 0o755)] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let write = |path: &Path, text: &str, mode| {
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&shipped.join("a.toml"), "shipped 'A'", 0o644);
        write(&shipped.join("b.toml"), "shipped 'B'", 0o644);
        write(&local.join("a.toml"), "env = 'LOCAL_A'", 0o666);
        write(&local.join("b.toml"), "", 0o666);
        let directories = [shipped.clone(), local];
        let faults = || {
            let found = read_sources(&directories).unwrap();
            let fault = |source: &ClassSource| {
                let error = source.parse().unwrap_err().to_string();
                (source.name.to_string(), error.contains("chmod go-w"))
            };
            // The user who changed the file may have removed its variable.
            assert!(
                found
                    .iter()
                    .all(|source| source.may_be_requested(|_| false))
            );
            found.iter().map(fault).collect::<Vec<_>>()
        };
        let both = [("a".to_owned(), true), ("b".to_owned(), true)];
        assert_eq!(faults(), both);
        // A directory that others can write in makes no file in it better.
        for name in ["a.toml", "b.toml"] {
            let path = directories[1].join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(&directories[1], fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(faults(), both);
    }

    /// A local user may make any number of files where he may write.
    #[test]
    fn the_number_of_files_that_others_can_change_is_bounded() {
        let [theirs, ours] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for number in 0..MAX_UNUSABLE_FILES + 10 {
            fs::write(theirs.path().join(format!("a{number}.toml")), "").unwrap();
        }
        fs::write(ours.path().join("z.toml"), "env = 'A'").unwrap();
        let directories = [&theirs, &ours].map(|directory| directory.path().to_owned());
        let names = || read_sources(&directories).unwrap().len();
        // Empty files disable classes, unless others could have emptied them.
        assert_eq!(names(), 1);
        fs::set_permissions(theirs.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(names(), MAX_UNUSABLE_FILES + 1);
        // A file that masks another one is kept although the limit is exceeded.
        fs::write(theirs.path().join("z.toml"), "").unwrap();
        let sources = read_each_source(&[&ours, &theirs].map(|it| it.path().to_owned())).unwrap();
        assert_eq!(sources.len(), MAX_UNUSABLE_FILES + 1);
        let last = sources.last().unwrap().as_ref().unwrap();
        assert!(last.name.as_str() == "z" && last.fault.is_some());
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
        let brief =
            read_each_source(&directories)
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
                "/local/b.toml: cannot be read: it is a directory, not a regular file",
                "c",
                "/local/d d.toml: class name `d d` may not have the character ' '; allowed are a-z A-Z 0-9 - _ .",
                "/local/e.toml: cannot be read: invalid utf-8 sequence of 1 bytes from index 0",
            ]
        );
        assert!(read_sources(&directories).is_err());
        assert!(
            read_each_source(&[local.join("e.toml")]).is_err(),
            "no directory"
        );
    }
}
