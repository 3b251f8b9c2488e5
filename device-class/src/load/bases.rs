//! Finds the class files that a class file extends, directly or indirectly.

use std::path::PathBuf;

use super::{BaseFile, ClassContent, ClassDirectory, ClassSource};
use crate::class;
use crate::name::ClassName;
use crate::strict_toml::{EXTENDS_KEY, FileError};

/// The maximum number of class files that a class extends, directly or indirectly. A longer chain
/// is an error.
const MAX_BASES: usize = 4;

/// The result of a search for a class file. `None` means that no directory has the file, or that
/// the file is empty.
type BaseLookup = Option<Result<ClassSource, FileError>>;

/// Finds the file of a class. If several directories have the file, the last of them is used. An
/// empty file disables the class.
pub(super) fn find_source(directories: &[PathBuf], name: &ClassName) -> BaseLookup {
    let file = PathBuf::from(format!("{name}.toml"));
    let mut directories = directories.iter().rev();
    let directory = directories.find(|path| path.join(&file).symlink_metadata().is_ok())?;
    let directory = ClassDirectory::open(directory)?;
    let source = ClassSource::read_in_directory(&directory, file.as_os_str());
    Some(source).filter(|source| !source.as_ref().is_ok_and(ClassSource::is_empty))
}

pub(super) fn add_bases(sources: &mut [Result<ClassSource, FileError>]) {
    let find_by_name = |name: &ClassName| {
        let is_base = |source: &&Result<ClassSource, FileError>| match source {
            Ok(source) => source.name == *name,
            Err(error) => error.path().file_stem() == Some(name.as_str().as_ref()),
        };
        sources.iter().find(is_base).cloned()
    };
    let find_text_by_name =
        |name: &ClassName| Some(find_by_name(name)?.and_then(ClassSource::into_text));
    let extended_sources = sources.iter().enumerate().filter_map(|(index, source)| {
        let source = source.as_ref().ok()?;
        let text_source = match &source.content {
            ClassContent::Text(text) => {
                class::find_extended_class(text)?;
                Ok(source.clone())
            }
            ClassContent::Indexed(class) => {
                let has_indexed_bases = class.bases().iter().all(|base| {
                    let is_base = |other: &&ClassSource| other.name.as_str() == base;
                    let base = sources.iter().flatten().find(is_base);
                    base.is_some_and(|base| base.is_in_same_index_directory(source))
                });
                if has_indexed_bases {
                    return None;
                }
                source.clone().into_text()
            }
        };
        let source = text_source.map(|mut source| {
            source.add_bases(find_text_by_name);
            source
        });
        Some((index, source))
    });
    for (index, source) in extended_sources.collect::<Vec<_>>() {
        sources[index] = source;
    }
}

impl ClassSource {
    /// Returns whether this class is read from the class index, and its file is in the same
    /// directory as that of `other`. Then `other` was merged with this class when the index was
    /// written.
    fn is_in_same_index_directory(&self, other: &Self) -> bool {
        matches!(self.content, ClassContent::Indexed(_))
            && self.path.parent() == other.path.parent()
    }

    pub(super) fn add_bases(&mut self, find_source: impl Fn(&ClassName) -> BaseLookup) {
        match self.find_bases(find_source) {
            Ok(bases) => self.bases = bases,
            Err(error) => self.fault = self.fault.take().or(Some(error)),
        }
    }

    fn find_bases(
        &self,
        find_source: impl Fn(&ClassName) -> BaseLookup,
    ) -> Result<Vec<BaseFile>, FileError> {
        let mut bases: Vec<BaseFile> = Vec::new();
        let mut chain = vec![self.name.clone()];
        loop {
            let last_base = bases.last();
            let last_base = last_base.map(|base| (&base.path, base.text.as_str()));
            let (path, text) = last_base.unwrap_or((&self.path, self.text()));
            let Some(name) = class::find_extended_class(text) else {
                return Ok(bases);
            };
            let to_error = |message: String| FileError::for_key(path, text, EXTENDS_KEY, message);
            let name = ClassName::try_from(name.to_owned()).map_err(|e| to_error(e.to_string()))?;
            let is_cycle = chain.contains(&name);
            chain.push(name.clone());
            let describe_chain = || {
                let names: Vec<&str> = chain.iter().map(ClassName::as_str).collect();
                names.join(" -> ")
            };
            if is_cycle {
                return Err(to_error(format!(
                    "a class cannot extend itself: {}",
                    describe_chain()
                )));
            }
            if bases.len() == MAX_BASES {
                let message = format!("more than {MAX_BASES} classes, one by way of another");
                return Err(to_error(format!("{message}: {}", describe_chain())));
            }
            let base = match find_source(&name) {
                None => Err(to_error(format!(
                    "no class file of the name {name}.toml, or an empty one disables it"
                ))),
                Some(Err(error)) => Err(to_error(error.to_string())),
                Some(Ok(base)) => match base.fault {
                    Some(fault) => Err(to_error(fault.to_string())),
                    None => Ok(base),
                },
            }?;
            bases.push(BaseFile {
                text: base.text().to_owned(),
                path: base.path,
            });
        }
    }
}
