//! Finds the class files whose content the index of their directory does not have.

use std::path::Path;

use super::ClassIndex;
use crate::load::{ClassDirectory, ClassSource, list_class_file_names};
use crate::name::ClassName;
use crate::strict_toml::FileError;

/// Returns the classes whose present content is not in the index of their directory. The index may
/// be absent, damaged, of another version, or older than the class file. Then each start of a
/// container has to read the class file. A file with a mistake is left out, because no index has
/// such a file.
///
/// # Errors
/// The directory cannot be read.
pub fn list_unindexed_classes(path: &Path) -> Result<Vec<ClassName>, FileError> {
    let Some(directory) = ClassDirectory::open(path) else {
        return Ok(Vec::new());
    };
    let opened = directory.open_result.as_ref().ok();
    let index = opened.and_then(ClassIndex::open);
    let mut unindexed = Vec::new();
    for name in list_class_file_names(path)? {
        let Ok(mut source) = ClassSource::read_in_directory(&directory, &name) else {
            continue;
        };
        source.add_bases_of_directory();
        if source.is_empty() || source.parse().is_err() {
            continue;
        }
        let stat = opened.and_then(|directory| directory.stat_file(&name));
        let class = index
            .as_ref()
            .zip(stat)
            .and_then(|(index, stat)| index.find_class(&source.name, &stat));
        let indexed_json = class.and_then(|class| class.read_bytes());
        let file_json = source.convert_to_json().map(|json| json.to_string());
        if indexed_json != file_json.map(String::into_bytes) {
            unindexed.push(source.name);
        }
    }
    unindexed.sort_unstable();
    Ok(unindexed)
}
