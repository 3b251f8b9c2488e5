//! Reads list files of the host, whose lines name the files and directories that a container
//! gets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::driver_root::DriverRoot;
use super::files;
use super::found::{FileSource, FoundDirectory, FoundFile, FoundNode, Presence};
use super::{DeviceError, FoundEdits, nodes, search};
use crate::class::{Edits, FileKind, ListedKind, PathTemplate, RequestSpec, is_plain};
use crate::host::{Entry, HostView, MAX_ATTRIBUTE};
use crate::name::{AttributeName, ListName, excerpt};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// The maximum number of paths in one list, and of matches of one pattern in a list.
const MAX_PATHS: usize = 512;

/// A table of `[[edits]]` with lists: the path of the lists, and the table that describes their
/// format.
pub(super) struct ListTable<'a> {
    pub at: &'a PathTemplate,
    pub edits: &'a Edits,
}

/// The names of the lists that apply to a container.
pub(super) struct Lists<'a> {
    names: &'a [ListName],
    /// Whether the container named the lists itself. A named list must exist; a default list may
    /// be absent.
    are_named: bool,
}

impl<'a> Lists<'a> {
    /// Selects the lists that a container names, or else the default lists of the class.
    pub(super) fn select(named: &'a [ListName], spec: &'a RequestSpec) -> Self {
        let are_named = !named.is_empty();
        let names = if are_named {
            named
        } else {
            &spec.default_lists
        };
        Lists { names, are_named }
    }

    /// Adds the files and directories that the lists name to `found`. A list that cannot be used
    /// is added as an unusable file, so that the container is refused.
    pub(super) fn look_up(
        &self,
        listed: &ListTable<'_>,
        attributes: &Attributes,
        host: &dyn HostView,
        found: &mut FoundEdits,
    ) -> Result<(), DeviceError> {
        let (lists, are_for_all) = self.fill_paths(listed.at, attributes)?;
        for list in lists {
            let unusable = match read(&list, &listed.edits.listed_kinds, host) {
                Ok(Some(lines)) => {
                    let paths = lines
                        .into_iter()
                        .filter(|(kind, _)| *kind == ListedKind::Path);
                    let paths = paths.flat_map(|(_, path)| matching(path, host));
                    paths.for_each(|path| add(path, host, found));
                    continue;
                }
                Ok(None) if are_for_all => continue,
                Ok(None) if !self.are_named => Presence::Optional,
                Ok(None) => Presence::Unusable(format!("{} does not exist", list.display())),
                Err(reason) => Presence::Unusable(reason),
            };
            found.files.push(file(list, unusable));
        }
        Ok(())
    }
}

impl Lists<'_> {
    /// Returns the device nodes that the lists name. A list that cannot be used is skipped,
    /// because [`Lists::look_up`] reports its fault.
    pub(super) fn nodes(
        &self,
        listed: &ListTable<'_>,
        attributes: &Attributes,
        host: &dyn HostView,
    ) -> Result<Vec<FoundNode>, DeviceError> {
        let (lists, _) = self.fill_paths(listed.at, attributes)?;
        let lines = lists
            .iter()
            .map(|list| read(list, &listed.edits.listed_kinds, host));
        let lines = lines.filter_map(Result::ok).flatten().flatten();
        let nodes = lines.filter(|(kind, _)| *kind == ListedKind::Node);
        let nodes = nodes.flat_map(|(_, path)| matching(path, host));
        Ok(nodes.map(|path| nodes::optional(path, host)).collect())
    }

    /// Returns the paths of the lists. The second value is true if `template` has no `{list}`, so
    /// that there is one list for all containers. The host may lack such a list.
    fn fill_paths(
        &self,
        template: &PathTemplate,
        attributes: &Attributes,
    ) -> Result<(Vec<PathBuf>, bool), DeviceError> {
        let list = AttributeName::list();
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

/// The lines of a list. Each one has a path on the host, and says whether a node or a file is
/// expected there.
type Lines = Vec<(ListedKind, PathBuf)>;

fn read(
    list: &Path,
    kinds: &BTreeMap<String, ListedKind>,
    host: &dyn HostView,
) -> Result<Option<Lines>, String> {
    let shown = list.display();
    match host.entry(list) {
        Ok(None) => return Ok(None),
        Ok(Some(Entry::File)) => {}
        Ok(Some(entry)) => return Err(format!("{shown} is {entry}, not a list of files")),
        Err(error) => return Err(format!("cannot look up {shown}: {error}")),
    }
    // A list that users other than root can change is refused, because containers get the files that
    // it names, and it can name any file.
    host.check_root_only(list)
        .map_err(|error| error.to_string())?;
    let bytes = host.read(list, MAX_ATTRIBUTE + 1);
    let bytes = bytes.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() > MAX_ATTRIBUTE {
        return Err(format!("{shown} is longer than {MAX_ATTRIBUTE} bytes"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{shown} is not UTF-8"))?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut paths = Vec::new();
    for (index, line) in lines {
        if !kinds.is_empty() {
            let line = line
                .split_once(',')
                .map(|(kind, path)| (kind.trim(), path.trim()));
            let line = line.filter(|(_, path)| is_plain(path));
            let line = line.and_then(|(kind, path)| Some((*kinds.get(kind)?, path.into())));
            paths.extend(line);
            continue;
        }
        let path = line.trim_end_matches('/');
        if !is_plain(path) {
            let (line, number) = (excerpt(line), index + 1);
            return Err(format!(
                "line {number} of {shown}: `{line}` is not an absolute path without `.` and `..`"
            ));
        }
        paths.push((ListedKind::Path, PathBuf::from(path)));
    }
    match paths.len() {
        0..=MAX_PATHS => Ok(Some(paths)),
        count => Err(format!(
            "{shown} has {count} paths; at most {MAX_PATHS} are read"
        )),
    }
}

/// Expands one line of a list: a line with `*`, `?` or `[` is a pattern for paths of the host,
/// and any other line is one path.
fn matching(path: PathBuf, host: &dyn HostView) -> Vec<PathBuf> {
    let text = path.to_string_lossy();
    let pattern = PathPattern::try_from(text.clone().into_owned());
    if text.contains(['*', '?', '['])
        && !text.contains(['{', '}'])
        && let Ok(pattern) = pattern
    {
        let matches = search::matches(&pattern, &Attributes::new(), host, MAX_PATHS);
        let matches = matches.unwrap_or_default().into_iter();
        return matches.map(|one| one.path).collect();
    }
    vec![path]
}

/// Adds a path of a list to the edits as a directory or as a file. The host need not have the
/// path. A path below a directory that the container gets already is not added.
fn add(path: PathBuf, host: &dyn HostView, found: &mut FoundEdits) {
    let has = |given: &FoundDirectory| {
        given.path == given.container
            && path.starts_with(&given.path)
            && matches!(given.directory, Presence::Found(_))
    };
    if found.directories.iter().any(has) {
        return;
    }
    let driver = DriverRoot::of_host(host);
    if matches!(host.entry(&path), Ok(Some(Entry::Directory))) {
        let directory = files::directory_at(&path, true, driver);
        found.directories.push(FoundDirectory {
            container: path.clone(),
            path,
            writable: false,
            libraries: Vec::new(),
            directory,
        });
    } else {
        let either = [FileKind::File, FileKind::Socket];
        let presence = files::file_at(&path, &either, true, driver);
        found.files.push(file(path, presence));
    }
}

fn file(path: PathBuf, file: Presence<FileSource>) -> FoundFile {
    FoundFile {
        container: path.clone(),
        path,
        binary: false,
        file,
    }
}
