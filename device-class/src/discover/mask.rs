//! Looks up masks, which are mounts that hide a directory from a container. Also looks up the files
//! and directories that a container still sees in a masked directory.

use std::path::{Path, PathBuf};

use super::found::{BitmaskFile, FoundCopy, FoundMask, PathLookup, UnmaskedEntry};
use super::paths::look_up_path;
use super::{DeviceError, attributes};
use crate::class::{Mask, UnmaskedPath};
use crate::host::{Entry, HostView, MAX_ATTRIBUTE_BYTES};
use crate::template::Attributes;

/// Looks up a mask, and reads the files of the host that the container gets as copies.
pub(super) fn find_mask(
    spec: &Mask,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<FoundMask, DeviceError> {
    let copies = spec.copies.iter().map(|path| {
        let path = path.fill(attributes)?;
        let content = read_copy(spec, &path, host);
        Ok(FoundCopy { path, content })
    });
    let bitmask_files = spec.bitmask_files.iter().map(|file| {
        Ok(BitmaskFile {
            path: file.path.fill(attributes)?,
            content: file.content.clone(),
            bit_number: file.bit_number.clone(),
        })
    });
    Ok(FoundMask {
        path: spec.path.fill(attributes)?,
        bitmask_files: bitmask_files.collect::<Result<_, DeviceError>>()?,
        copies: copies.collect::<Result<_, DeviceError>>()?,
    })
}

/// Looks up a file or directory that stays visible to a container with the device although it is in
/// a masked directory.
pub(super) fn find_unmasked_entry(
    spec: &UnmaskedPath,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<UnmaskedEntry, DeviceError> {
    let path = spec.path.fill(attributes)?;
    let source = look_up_path(
        &path,
        spec.optional,
        "a file or a directory",
        host,
        |host_file| {
            matches!(host_file.entry, Entry::File | Entry::Directory).then_some(host_file.path)
        },
    );
    let link = find_kernel_link(&path, host);
    Ok(UnmaskedEntry { path, source, link })
}

/// Returns the target of a symbolic link in /sys/class or /sys/bus. The container gets the same
/// link. Its target also exists in the container, because host and container have the /sys of the
/// same kernel. A mount of the target directory in place of the link would break relative links in
/// the directory, such as `device`.
fn find_kernel_link(path: &Path, host: &dyn HostView) -> Option<PathBuf> {
    if !is_sysfs_link_directory(path) || !host.is_link(path) {
        return None;
    }
    host.read_link(path).ok()
}

/// Returns whether `path` is in /sys/class or /sys/bus. There the kernel has symbolic links to
/// directories in /sys/devices. A mask over such a path keeps programs from listing other devices,
/// but it hides no secrets: the directories in /sys/devices stay visible.
pub fn is_sysfs_link_directory(path: &Path) -> bool {
    path.starts_with("/sys/class") || path.starts_with("/sys/bus")
}

fn read_copy(spec: &Mask, path: &Path, host: &dyn HostView) -> PathLookup<String> {
    let bytes = match host.read(path, MAX_ATTRIBUTE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return PathLookup::OptionalAbsent;
        }
        Err(error) => {
            return PathLookup::Unusable(format!("{} cannot be read: {error}", path.display()));
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => PathLookup::Found(replace_lines(text, spec)),
        Err(_) => PathLookup::Unusable(format!("{} is not plain text", path.display())),
    }
}

/// Replaces values in the text of a copied file. If a line has a key that `set` of the mask lists,
/// the new line is `key: value` with the value from `set`.
fn replace_lines(text: String, spec: &Mask) -> String {
    if spec.replaced_values.is_empty() {
        return text;
    }
    let mut new_text = String::with_capacity(text.len());
    for line in text.lines() {
        let has_key = |key: &str| attributes::find_keyed_values(line, key).next().is_some();
        match spec.replaced_values.iter().find(|(key, _)| has_key(key)) {
            Some((key, value)) => new_text.extend([key, ": ", value]),
            None => new_text.push_str(line),
        }
        new_text.push('\n');
    }
    new_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_the_values_of_the_class() {
        let set = [("Modify", "0"), ("Other", "1")];
        let spec = Mask {
            path: crate::class::PathTemplate::try_from("/x".to_owned()).unwrap(),
            copies: Vec::new(),
            bitmask_files: Vec::new(),
            replaced_values: set.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        };
        for (text, wanted) in [
            ("Modify: 1\nA: 2\n", "Modify: 0\nA: 2\n"),
            ("ModifyMore: 1\nOther: 5", "ModifyMore: 1\nOther: 1\n"),
            ("", ""),
        ] {
            assert_eq!(replace_lines(text.to_owned(), &spec), wanted, "{text:?}");
        }
    }
}
