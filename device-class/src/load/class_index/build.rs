//! Builds the text of a class index, which the installer writes beside the class files.

use std::path::Path;

use nix::sys::stat::FileStat;

use super::{ClassEntry, FileState, Header};
use crate::load::{BaseFile, ClassContent, ClassSource, bases, parse_class_name};

/// A class file whose content is added to an index.
#[derive(Debug)]
pub struct ClassFile {
    /// The name of the file, such as `dummy-npu.toml`.
    pub name: String,
    pub text: String,
    /// The metadata of the file in the directory of the index.
    pub stat: FileStat,
}

/// Builds the index of a directory that has these class files. Files with mistakes are left out. So
/// Boathook's programs read such a file itself, and report the mistake.
///
/// Before the index is written, the clock of the file system must have advanced since the last
/// change of the class files. Otherwise the index is not used for these files.
pub fn build_index(files: &[ClassFile]) -> String {
    let sources = files.iter().map(|file| {
        let path = Path::new(&file.name);
        Ok(ClassSource {
            name: parse_class_name(path)?,
            path: path.to_owned(),
            content: ClassContent::Text(file.text.clone()),
            bases: Vec::new(),
            fault: None,
        })
    });
    let mut sources: Vec<_> = sources.collect();
    bases::add_bases(&mut sources);
    let mut header = Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        classes: Vec::new(),
    };
    let mut lines = String::new();
    for (file, source) in files.iter().zip(&sources) {
        let Ok(source) = source else { continue };
        if let Some((mut entry, line)) = convert_class(source, file) {
            entry.offset = lines.len() as u64;
            entry.length = line.len() as u64;
            header.classes.push(entry);
            lines += &line;
            lines.push('\n');
        }
    }
    let header = serde_json::to_string(&header).unwrap_or_default();
    format!("{header}\n{lines}")
}

/// Returns the entry of a class without its offset and length, and the class as JSON. Returns
/// `None` for a class file with a mistake.
fn convert_class(source: &ClassSource, file: &ClassFile) -> Option<(ClassEntry, String)> {
    let class = source.parse().ok()?;
    let get_base_name = |base: &BaseFile| {
        let name = parse_class_name(&base.path).ok()?;
        Some(name.as_str().to_owned())
    };
    let entry = ClassEntry {
        name: source.name.as_str().to_owned(),
        file: FileState::from_stat(&file.stat)?,
        variable: class.spec.request.env.as_str().to_owned(),
        bases: source
            .bases
            .iter()
            .map(get_base_name)
            .collect::<Option<_>>()?,
        offset: 0,
        length: 0,
    };
    Some((entry, source.convert_to_json()?.to_string()))
}
