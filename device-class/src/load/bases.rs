//! Finds the class files that a class file extends, directly and indirectly.

use std::path::PathBuf;

use super::{Base, ClassSource, Directory};
use crate::class;
use crate::name::ClassName;
use crate::strict_toml::{EXTENDS, FileError};

/// The maximum number of class files that a class extends, directly or through another class.
const MAX_BASES: usize = 4;

/// The result of a search for a class file. `None` means that no directory has the file.
type Lookup = Option<Result<ClassSource, FileError>>;

/// Finds the file of a class. A later directory masks an earlier one.
pub(super) fn find(directories: &[PathBuf], name: &ClassName) -> Lookup {
    let file = PathBuf::from(format!("{name}.toml"));
    let mut directories = directories.iter().rev();
    let directory = directories.find(|path| path.join(&file).symlink_metadata().is_ok())?;
    let directory = Directory::open(directory)?;
    let found = ClassSource::read_in(&directory, file.as_os_str());
    Some(found).filter(|found| !found.as_ref().is_ok_and(ClassSource::is_empty))
}

pub(super) fn add(sources: &mut [Result<ClassSource, FileError>]) {
    let find = |name: &ClassName| {
        let is_base = |source: &&Result<ClassSource, FileError>| match source {
            Ok(source) => source.name == *name,
            Err(error) => error.path().file_stem() == Some(name.as_str().as_ref()),
        };
        sources.iter().find(is_base).cloned()
    };
    let extended = sources.iter().enumerate().filter_map(|(at, source)| {
        let source = source.as_ref().ok()?;
        class::extends(&source.text)?;
        let mut source = source.clone();
        source.extend(find);
        Some((at, source))
    });
    for (at, source) in extended.collect::<Vec<_>>() {
        sources[at] = Ok(source);
    }
}

impl ClassSource {
    pub(super) fn extend(&mut self, find: impl Fn(&ClassName) -> Lookup) {
        match self.bases(find) {
            Ok(bases) => self.bases = bases,
            Err(error) => self.fault = self.fault.take().or(Some(error)),
        }
    }

    fn bases(&self, find: impl Fn(&ClassName) -> Lookup) -> Result<Vec<Base>, FileError> {
        let mut bases: Vec<Base> = Vec::new();
        let mut chain = vec![self.name.clone()];
        loop {
            let last = bases.last().map(|base| (&base.path, &base.text));
            let (path, text) = last.unwrap_or((&self.path, &self.text));
            let Some(name) = class::extends(text) else {
                return Ok(bases);
            };
            let failed = |message: String| FileError::of_key(path, text, EXTENDS, message);
            let name = ClassName::try_from(name.to_owned()).map_err(|e| failed(e.to_string()))?;
            let is_loop = chain.contains(&name);
            chain.push(name.clone());
            let way = || {
                let names: Vec<&str> = chain.iter().map(ClassName::as_str).collect();
                names.join(" -> ")
            };
            if is_loop {
                return Err(failed(format!("a class cannot extend itself: {}", way())));
            }
            if bases.len() == MAX_BASES {
                let message = format!("more than {MAX_BASES} classes, one by way of another");
                return Err(failed(format!("{message}: {}", way())));
            }
            let base = match find(&name) {
                None => Err(failed(format!(
                    "no class file of the name {name}.toml, or an empty one disables it"
                ))),
                Some(Err(error)) => Err(failed(error.to_string())),
                Some(Ok(base)) => match base.fault {
                    Some(fault) => Err(failed(fault.to_string())),
                    None => Ok(base),
                },
            }?;
            bases.push(Base {
                path: base.path,
                text: base.text,
            });
        }
    }
}
