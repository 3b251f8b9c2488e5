//! Reads list files of the host. Their lines name files and directories that a container gets
//! (`files_listed_in`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::driver_root::DriverRoot;
use super::files;
use super::found::{FileSource, FoundDirectory, FoundFile, FoundNode, PathLookup};
use super::{DeviceError, FoundEdits, nodes, search};
use crate::class::{Edits, FileKind, ListedKind, PathTemplate, RequestSpec, is_plain_path};
use crate::host::{Entry, HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::{AttributeName, ListName, excerpt};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// The maximum number of paths in one list file, and of matches of one pattern in it. A list file
/// with more paths is an error. Further matches of a pattern are left out.
const MAX_LISTED_PATHS: usize = 512;

/// A table of `[[edits]]` with the key `files_listed_in`. `path` is the value of this key: a
/// template for the paths of the list files. `edits` is the table, which also defines the format of
/// their lines.
pub(super) struct ListTable<'a> {
    pub path: &'a PathTemplate,
    pub edits: &'a Edits,
}

/// The names of the list files that a container gets.
pub(super) struct ListSelection<'a> {
    names: &'a [ListName],
    /// Whether the container requests the list files by name. A requested list file must exist, but
    /// a default one may be missing.
    are_requested: bool,
}

impl<'a> ListSelection<'a> {
    /// Returns the list files that a container requests. If it requests none, returns the default
    /// ones of the class.
    pub(super) fn select(requested_names: &'a [ListName], spec: &'a RequestSpec) -> Self {
        let are_requested = !requested_names.is_empty();
        let names = if are_requested {
            requested_names
        } else {
            &spec.default_file_lists
        };
        ListSelection {
            names,
            are_requested,
        }
    }

    /// Adds the files and directories in the list files to `found_edits`. If a list file cannot be
    /// used, it is added itself, as an unusable file. Then the hook refuses the container.
    pub(super) fn add_files(
        &self,
        table: &ListTable<'_>,
        attributes: &Attributes,
        host: &dyn HostView,
        found_edits: &mut FoundEdits,
    ) -> Result<(), DeviceError> {
        let (lists, is_common_list) = self.fill_paths(table.path, attributes)?;
        for list in lists {
            let presence = match read_list(&list, &table.edits.listed_kinds, host) {
                Ok(Some(lines)) => {
                    let paths = lines
                        .into_iter()
                        .filter(|(kind, _)| *kind == ListedKind::Path);
                    let paths = paths.flat_map(|(_, path)| expand_path(path, host));
                    paths.for_each(|path| add_path(path, host, found_edits));
                    continue;
                }
                Ok(None) if is_common_list => continue,
                Ok(None) if !self.are_requested => PathLookup::OptionalAbsent,
                Ok(None) => PathLookup::Unusable(format!("{} does not exist", list.display())),
                Err(reason) => PathLookup::Unusable(reason),
            };
            found_edits.files.push(to_found_file(list, presence));
        }
        Ok(())
    }
}

impl ListSelection<'_> {
    /// Returns the device nodes that the list files name. Skips a list file that cannot be used,
    /// because [`ListSelection::add_files`] reports it.
    pub(super) fn find_nodes(
        &self,
        table: &ListTable<'_>,
        attributes: &Attributes,
        host: &dyn HostView,
    ) -> Result<Vec<FoundNode>, DeviceError> {
        let (lists, _) = self.fill_paths(table.path, attributes)?;
        let lines = lists
            .iter()
            .map(|list| read_list(list, &table.edits.listed_kinds, host));
        let lines = lines.filter_map(Result::ok).flatten().flatten();
        let nodes = lines.filter(|(kind, _)| *kind == ListedKind::Node);
        let nodes = nodes.flat_map(|(_, path)| expand_path(path, host));
        Ok(nodes
            .map(|path| nodes::find_optional_node(path, host))
            .collect())
    }

    /// Returns the paths of the list files. The second value is true if `template` has no `{list}`:
    /// then all containers use the same list file, and the host may lack it.
    fn fill_paths(
        &self,
        template: &PathTemplate,
        attributes: &Attributes,
    ) -> Result<(Vec<PathBuf>, bool), DeviceError> {
        let list = AttributeName::list_attribute();
        if !template.template().attributes().any(|name| *name == list) {
            return Ok((vec![template.fill(attributes)?], true));
        }
        let paths = self.names.iter().map(|name| {
            let mut attributes = attributes.clone();
            attributes.insert(list.clone(), name.to_string());
            template.fill(&attributes)
        });
        Ok((paths.collect::<Result<_, _>>()?, false))
    }
}

/// The lines of a list file: paths on the host, each with the kind of file that is expected there.
type ListLines = Vec<(ListedKind, PathBuf)>;

fn read_list(
    list_path: &Path,
    kinds: &BTreeMap<String, ListedKind>,
    host: &dyn HostView,
) -> Result<Option<ListLines>, String> {
    let displayed_path = list_path.display();
    match host.entry(list_path) {
        Ok(None) => return Ok(None),
        Ok(Some(Entry::File)) => {}
        Ok(Some(entry)) => return Err(format!("{displayed_path} is {entry}, not a list of files")),
        Err(error) => return Err(format!("cannot look up {displayed_path}: {error}")),
    }
    // A list file that users other than root can change is refused. Otherwise such a user could
    // give any file of the host to containers.
    host.check_root_only(list_path)
        .map_err(|error| error.to_string())?;
    let bytes = host.read(list_path, MAX_ATTRIBUTE_BYTES + 1);
    let bytes = bytes.map_err(|error| format!("cannot read {displayed_path}: {error}"))?;
    if bytes.len() > MAX_ATTRIBUTE_BYTES {
        return Err(format!(
            "{displayed_path} is longer than {MAX_ATTRIBUTE_BYTES} bytes"
        ));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{displayed_path} is not UTF-8"))?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut paths = Vec::new();
    for (index, line) in lines {
        if !kinds.is_empty() {
            let fields = line
                .split_once(',')
                .map(|(kind, path)| (kind.trim(), path.trim()));
            let fields = fields.filter(|(_, path)| is_plain_path(path));
            let kind_and_path =
                fields.and_then(|(kind, path)| Some((*kinds.get(kind)?, path.into())));
            paths.extend(kind_and_path);
            continue;
        }
        let path = line.trim_end_matches('/');
        if !is_plain_path(path) {
            let (line, number) = (excerpt(line), index + 1);
            return Err(format!(
                "line {number} of {displayed_path}: `{line}` is not an absolute path without `.` and `..`"
            ));
        }
        paths.push((ListedKind::Path, PathBuf::from(path)));
    }
    match paths.len() {
        0..=MAX_LISTED_PATHS => Ok(Some(paths)),
        count => Err(format!(
            "{displayed_path} has {count} paths; at most {MAX_LISTED_PATHS} are read"
        )),
    }
}

/// Expands one line of a list file to paths. A line with `*`, `?` or `[`, such as `/usr/lib/libx*`,
/// is a pattern for paths of the host. Any other line is a single path.
fn expand_path(path: PathBuf, host: &dyn HostView) -> Vec<PathBuf> {
    let text = path.to_string_lossy();
    let pattern = PathPattern::try_from(text.clone().into_owned());
    if text.contains(['*', '?', '['])
        && !text.contains(['{', '}'])
        && let Ok(pattern) = pattern
    {
        let matches = search::find_matches(&pattern, &Attributes::new(), host, MAX_LISTED_PATHS);
        let matches = matches.unwrap_or_default().into_iter();
        return matches.map(|path_match| path_match.path).collect();
    }
    vec![path]
}

/// Adds a path from a list file to `found_edits`, as a directory or as a file. The path may be
/// missing on the host. A path below a directory that was already added is left out.
fn add_path(path: PathBuf, host: &dyn HostView, found_edits: &mut FoundEdits) {
    let contains_path = |directory: &FoundDirectory| {
        directory.path == directory.container_path
            && path.starts_with(&directory.path)
            && matches!(directory.directory, PathLookup::Found(_))
    };
    if found_edits.directories.iter().any(contains_path) {
        return;
    }
    let host_root = DriverRoot::from_host(host);
    if matches!(host.entry(&path), Ok(Some(Entry::Directory))) {
        let directory = files::look_up_directory(&path, true, host_root);
        found_edits.directories.push(FoundDirectory {
            is_optional: true,
            container_path: path.clone(),
            path,
            is_writable: false,
            libraries: Vec::new(),
            directory,
        });
    } else {
        let kinds = [FileKind::File, FileKind::Socket];
        let presence = files::look_up_file(&path, &kinds, true, host_root);
        found_edits.files.push(to_found_file(path, presence));
    }
}

fn to_found_file(path: PathBuf, file: PathLookup<FileSource>) -> FoundFile {
    FoundFile {
        container_path: path.clone(),
        path,
        is_program: false,
        is_optional: true,
        file,
    }
}
