//! Reads the attributes of devices and of the host, such as a model or a driver's version. The
//! entries of `attributes` in a class file describe the source of each attribute.

use std::io;
use std::path::{Path, PathBuf};

use super::{MAX_DEVICES, search};
use crate::class::{AttributeOrigin, AttributeSource, ExpectedContent, RegexPattern, TextSource};
use crate::driver_properties::DriverProperties;
use crate::formula;
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::excerpt;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template, TemplateError};

/// The maximum length of an attribute's value in bytes; a longer value is an error. Attributes
/// become parts of ids and paths, which must stay short.
const MAX_VALUE_BYTES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    #[error("{0}")]
    Other(String),
}

impl From<TemplateError> for ReadError {
    fn from(error: TemplateError) -> Self {
        ReadError::Other(error.to_string())
    }
}

/// Reads files of a host and caches the last one. Often several attributes in a row come from the
/// same file, and a driver may need milliseconds to produce its content.
pub(super) struct FileReader<'h> {
    host: &'h dyn HostView,
    /// The path and the content of the file that was read last.
    cached_file: Option<(PathBuf, String)>,
}

impl<'h> FileReader<'h> {
    pub(super) fn new(host: &'h dyn HostView) -> Self {
        FileReader {
            host,
            cached_file: None,
        }
    }

    fn read_file(&mut self, path: &Path) -> io::Result<&str> {
        if self
            .cached_file
            .as_ref()
            .is_none_or(|(cached_path, _)| cached_path != path)
        {
            let bytes = self.host.read(path, MAX_ATTRIBUTE_BYTES)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.cached_file = Some((path.to_owned(), text));
        }
        Ok(self.cached_file.as_ref().map_or("", |(_, text)| text))
    }
}

/// Reads attributes in order, and returns `attributes` with the new ones added. An entry of
/// `sources` may use the attributes of earlier entries. If an entry cannot be read, its default
/// value is used; without a default, the error is returned. Relative paths are relative to
/// `base_path`.
pub(super) fn read_attributes(
    sources: &[AttributeSource],
    base_path: Option<&Path>,
    mut attributes: Attributes,
    properties: &DriverProperties,
    files: &mut FileReader<'_>,
) -> Result<Attributes, ReadError> {
    for source in sources {
        let value = read_source(source, base_path, &attributes, properties, files);
        match (value, &source.default) {
            (Ok(values), _) => attributes.extend(values),
            (Err(_), Some(default)) => {
                let default = default.fill(&attributes)?;
                for name in source.names() {
                    if source.sets_attribute(name, attributes.contains_key(name)) {
                        attributes.insert(name.clone(), default.clone());
                    }
                }
            }
            (Err(read_error), None) => {
                return Err(match &source.advice {
                    None => read_error,
                    Some(advice) => ReadError::Other(format!(
                        "{read_error}; {}",
                        fill_advice(advice, &attributes)
                    )),
                });
            }
        }
    }
    Ok(attributes)
}

/// Replaces each `{name}` in a text for users by the value of the attribute `name`. Braces around
/// any other text are kept, because the text may quote a command with braces.
pub(super) fn fill_advice(advice: &str, attributes: &Attributes) -> String {
    let mut text = advice.to_owned();
    if text.contains('{') {
        for (name, value) in attributes {
            text = text.replace(&format!("{{{name}}}"), value);
        }
    }
    text
}

fn read_source(
    source: &AttributeSource,
    base_path: Option<&Path>,
    attributes: &Attributes,
    properties: &DriverProperties,
    files: &mut FileReader<'_>,
) -> Result<Attributes, ReadError> {
    let host = files.host;
    let (name, value) = match &source.origin {
        AttributeOrigin::Path {
            count_name,
            pattern,
            expected_content,
            link_target,
        } => {
            let counts_matches = count_name.is_some();
            let matches = find_matching_paths(
                pattern,
                expected_content.as_ref(),
                link_target.as_ref(),
                counts_matches,
                attributes,
                host,
            )?;
            match count_name {
                Some(name) => (name, matches.len().to_string()),
                None => {
                    let first_match = matches.into_iter().next();
                    let first_match = first_match
                        .ok_or_else(|| ReadError::Other(format!("nothing matches {pattern}")))?;
                    return Ok(first_match.attributes);
                }
            }
        }
        AttributeOrigin::Link { name, link } => {
            let path = resolve_path(link, base_path, attributes)?;
            let target = host
                .read_link(&path)
                .map_err(|error| read_error(&path, error))?;
            let target_name = target
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            (name, check_value(&path, target_name)?)
        }
        AttributeOrigin::Text {
            name,
            text: text_source,
            regex,
        } => {
            let (path, text) = read_text(text_source, base_path, attributes, properties, files)?;
            let to_no_match_error = |regex| {
                let source_text = match text_source {
                    TextSource::Value(_) => format!("`{}`", excerpt(&text)),
                    _ => path.display().to_string(),
                };
                ReadError::Other(format!("{source_text} has no match of `{regex}`"))
            };
            let value = match regex {
                None => first_line(&text),
                // Line feeds and NUL bytes at the end are removed, because `$` in a regular
                // expression does not match before them. Files in sysfs end with a line feed, and
                // strings in the device tree end with a NUL byte.
                Some(RegexPattern(regex)) => regex
                    .captures(text.trim_end_matches(['\n', '\0']))
                    .and_then(|groups| groups.get(1).or(groups.get(0)))
                    .map(|group| group.as_str())
                    .ok_or_else(|| to_no_match_error(regex))?,
            };
            (name, check_value(&path, value)?)
        }
    };
    let value = source.replacements.get(&value).cloned().unwrap_or(value);
    Ok([(name.clone(), value)].into())
}

/// Reads the text that contains an attribute's value. The returned path names the origin of the
/// text in error messages: a file, a template, or the key of a driver property.
fn read_text(
    text_source: &TextSource,
    base_path: Option<&Path>,
    attributes: &Attributes,
    properties: &DriverProperties,
    files: &mut FileReader<'_>,
) -> Result<(PathBuf, String), ReadError> {
    match text_source {
        TextSource::Value(template) => {
            Ok((template.to_string().into(), template.fill(attributes)?))
        }
        TextSource::Formula(template) => {
            let formula_text = template.fill(attributes)?;
            let value = formula::evaluate(&formula_text).map_err(|error| {
                let formula_text = excerpt(&formula_text);
                ReadError::Other(format!("`{template}` is `{formula_text}`, which {error}"))
            })?;
            Ok((template.to_string().into(), value.to_string()))
        }
        TextSource::RealPath(template) => {
            let path = resolve_path(template, base_path, attributes)?;
            let real_path = files
                .host
                .canonicalize(&path)
                .map_err(|error| read_error(&path, error))?;
            let text = real_path.to_string_lossy().into_owned();
            Ok((path, text))
        }
        TextSource::DriverProperty(key) => {
            let key = key.fill(attributes)?;
            let to_missing_error = || ReadError::Other(format!("there is no fact `{key}`"));
            let value = properties.first_value(&key).ok_or_else(to_missing_error)?;
            Ok((key.clone().into(), value.to_owned()))
        }
        TextSource::File { file, key } => {
            let path = resolve_path(file, base_path, attributes)?;
            let text = files
                .read_file(&path)
                .map_err(|error| read_error(&path, error))?;
            let Some(key) = key else {
                let text = text.to_owned();
                return Ok((path, text));
            };
            let key = key.fill(attributes)?;
            match find_keyed_values(text, &key).next() {
                Some(value) => Ok((path, value.to_owned())),
                None => Err(missing_error(&path, &format!("line `{key}`"))),
            }
        }
    }
}

/// Returns the paths that match a pattern. With `expected_content`, returns only files with this
/// content. With `link_target`, returns only symbolic links to this path. Without `finds_all`,
/// returns at most one path.
fn find_matching_paths(
    pattern: &PathPattern,
    expected_content: Option<&ExpectedContent>,
    link_target: Option<&Template>,
    finds_all: bool,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<search::PathMatch>, ReadError> {
    let target_path = link_target.map(|path| path.fill(attributes)).transpose()?;
    let target_path = target_path.and_then(|path| host.canonicalize(Path::new(&path)).ok());
    let limit = if finds_all || expected_content.is_some() || link_target.is_some() {
        MAX_DEVICES
    } else {
        1
    };
    let matches = search::find_matches(pattern, attributes, host, limit).unwrap_or_default();
    let key = expected_content.and_then(|content| content.key.as_ref());
    let key = key.map(|key| key.fill(attributes)).transpose()?;
    let mut expected_values = Vec::new();
    for value in expected_content.iter().flat_map(|content| &content.values) {
        expected_values.push(value.fill(attributes)?);
    }
    // The pattern may also match the target itself. The target is not a link, so it is left out.
    let is_link_to_target = |path: &Path| {
        target_path.is_some() && host.is_link(path) && host.canonicalize(path).ok() == target_path
    };
    let matching_paths = matches
        .into_iter()
        .filter(|path_match| {
            expected_content.is_none()
                || has_expected_content(&path_match.path, key.as_deref(), &expected_values, host)
        })
        .filter(|path_match| link_target.is_none() || is_link_to_target(&path_match.path));
    Ok(matching_paths
        .take(if finds_all { usize::MAX } else { 1 })
        .collect())
}

/// Returns whether the content of a file is one of `expected_values`. With `key`, compares only the
/// values of lines such as `key: value`. A file that cannot be read counts as empty.
pub(super) fn has_expected_content(
    path: &Path,
    key: Option<&str>,
    expected_values: &[String],
    host: &dyn HostView,
) -> bool {
    let text = host.read(path, MAX_ATTRIBUTE_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_expected = |value: &str| expected_values.iter().any(|expected| expected == value);
    match key {
        Some(key) => find_keyed_values(&text, key).any(is_expected),
        // A property in the device tree may consist of several strings, each of which ends with a
        // NUL byte.
        None => text.split('\0').any(|string| is_expected(string.trim())),
    }
}

/// Returns the first line of a text. A NUL byte also ends the line, because strings in the device
/// tree end with NUL (Devicetree Specification, "Property Values").
fn first_line(text: &str) -> &str {
    let line = text.split(['\n', '\0']).next().unwrap_or_default();
    line.trim()
}

/// Returns the value of the first line with this key in a file. Returns `None` if no line has the
/// key, or if the file cannot be read.
pub(super) fn read_keyed_value(path: &Path, key: &str, host: &dyn HostView) -> Option<String> {
    let text = host.read(path, MAX_ATTRIBUTE_BYTES).ok()?;
    let text = String::from_utf8_lossy(&text);
    find_keyed_values(&text, key).next().map(str::to_owned)
}

/// Fills in a template for a path. A relative path is relative to `base_path`, the path that
/// `[[discover]]` matched. Without `base_path`, it is relative to the host's root directory.
pub(super) fn resolve_path(
    template: &Template,
    base_path: Option<&Path>,
    attributes: &Attributes,
) -> Result<PathBuf, TemplateError> {
    let path = template.fill(attributes)?;
    Ok(base_path.unwrap_or(Path::new("/")).join(path))
}

/// Returns the values of all lines that have this key. A line has the form `key: value`, `key =
/// value` or `key value`; all three occur in procfs and sysfs.
pub(super) fn find_keyed_values<'a>(text: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let text_after_key = line.trim_start().strip_prefix(key)?;
        let value = text_after_key
            .trim_start()
            .strip_prefix([':', '='])
            .or_else(|| {
                let is_separated = text_after_key.starts_with(char::is_whitespace);
                is_separated.then_some(text_after_key)
            })?;
        Some(value.trim())
    })
}

/// Returns `value` if it may become a part of ids and paths. A value that is empty, longer than
/// [`MAX_VALUE_BYTES`] or has control characters is an error, which names `path` as its origin.
fn check_value(path: &Path, value: &str) -> Result<String, ReadError> {
    if value.is_empty() {
        return Err(missing_error(path, "value"));
    }
    let is_unprintable = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    if value.len() > MAX_VALUE_BYTES || value.contains(is_unprintable) {
        let (path, value) = (path.display(), excerpt(value));
        return Err(ReadError::Other(format!(
            "{path} is not plain text: {value}"
        )));
    }
    Ok(value.to_owned())
}

fn read_error(path: &Path, error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::NotFound => ReadError::NotFound(path.into()),
        _ => ReadError::Other(format!("{} cannot be read: {error}", path.display())),
    }
}

fn missing_error(path: &Path, missing_item: &str) -> ReadError {
    ReadError::Other(format!("{} has no {missing_item}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_values_are_found_in_the_shapes_that_proc_has() {
        for (text, key, wanted) in [
            (
                "Model: \t X 100\nGPU UUID:\t GPU-1\n",
                "GPU UUID",
                vec!["GPU-1"],
            ),
            (
                "drm_render_minor 128\nsimd_count 0\n",
                "drm_render_minor",
                vec!["128"],
            ),
            ("a = 1\na=2\n", "a", vec!["1", "2"]),
            ("Device Minor: \t 10", "Device", vec!["Minor: \t 10"]),
            ("Devices: 1", "Device", vec![]),
        ] {
            assert_eq!(
                find_keyed_values(text, key).collect::<Vec<_>>(),
                wanted,
                "{key} in {text:?}"
            );
        }
    }
}
