//! What a container sees of a masked directory.

use std::path::Path;

use super::found::{FoundCopy, FoundMask, FoundShown, Presence};
use super::{DeviceError, attributes};
use crate::class::{CopiedFile, Mask, PathTemplate};
use crate::host::{Entry, HostView, MAX_ATTRIBUTE};
use crate::template::Attributes;

/// Looks up a mask and the files that are copied into it.
pub(super) fn mask(
    spec: &Mask,
    attributes: &Attributes,
    optional: bool,
    host: &dyn HostView,
) -> Result<FoundMask, DeviceError> {
    let copies = spec.copies.iter().map(|spec| {
        let path = spec.path.fill(attributes)?;
        let text = text(spec, &path, optional || spec.optional, host);
        Ok(FoundCopy { path, text })
    });
    Ok(FoundMask {
        path: spec.path.fill(attributes)?,
        copies: copies.collect::<Result<_, DeviceError>>()?,
    })
}

/// Looks up what a device shows of masked directories.
pub(super) fn shown(
    spec: &PathTemplate,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<FoundShown, DeviceError> {
    let path = spec.fill(attributes)?;
    let source = match (host.entry(&path), host.canonical(&path)) {
        (Ok(Some(Entry::File | Entry::Directory)), Ok(canonical)) => Presence::Found(canonical),
        (Ok(Some(entry)), Ok(_)) => Presence::Unfit(format!(
            "{} is {entry}, not a file or a directory",
            path.display()
        )),
        (Ok(None), _) => Presence::Unfit(format!("{} is not there", path.display())),
        (Err(error), _) | (_, Err(error)) => {
            Presence::Unfit(format!("{} can't be looked at: {error}", path.display()))
        }
    };
    Ok(FoundShown { path, source })
}

fn text(spec: &CopiedFile, path: &Path, optional: bool, host: &dyn HostView) -> Presence<String> {
    let bytes = match host.read(path, MAX_ATTRIBUTE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match optional {
                true => Presence::Optional,
                false => Presence::Unfit(format!("{} is not there", path.display())),
            };
        }
        Err(error) => {
            return Presence::Unfit(format!("{} can't be read: {error}", path.display()));
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Presence::Found(with_lines(text, spec)),
        Err(_) => Presence::Unfit(format!("{} holds no plain text", path.display())),
    }
}

/// The text with the lines that the class sets.
fn with_lines(text: String, spec: &CopiedFile) -> String {
    if spec.set.is_empty() {
        return text;
    }
    let mut missing = spec.set.clone();
    let mut lines = Vec::new();
    for line in text.lines() {
        let set = spec
            .set
            .iter()
            .find(|(key, _)| attributes::keyed_values(line, key).next().is_some());
        match set {
            Some((key, value)) => {
                missing.remove(key);
                lines.push(format!("{key}: {value}"));
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines.extend(missing.iter().map(|(key, value)| format!("{key}: {value}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_set_or_added() {
        let set = [("Modify", "0"), ("Extra", "1")];
        let spec = CopiedFile {
            path: PathTemplate::try_from("/x/params".to_owned()).unwrap(),
            set: set.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            optional: false,
        };
        for (text, wanted) in [
            ("Modify: 1\nA: 2\n", "Modify: 0\nA: 2\nExtra: 1\n"),
            (
                "ModifyMore: 1\nExtra: 5",
                "ModifyMore: 1\nExtra: 1\nModify: 0\n",
            ),
            ("", "Extra: 1\nModify: 0\n"),
        ] {
            assert_eq!(with_lines(text.to_owned(), &spec), wanted, "{text:?}");
        }
    }
}
