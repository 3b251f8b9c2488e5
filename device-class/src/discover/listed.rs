//! Files and directories that are listed in a file of the host.

use std::path::{Path, PathBuf};

use super::driver_root::DriverRoot;
use super::files;
use super::found::{FileSource, FoundDirectory, FoundFile, Presence};
use super::{DeviceError, FoundEdits, search};
use crate::class::{FileKind, PathTemplate, RequestSpec, is_plain};
use crate::host::{Entry, HostView, MAX_ATTRIBUTE};
use crate::name::{AttributeName, ListName, excerpt};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// The limit of a list's paths.
const MAX_PATHS: usize = 512;

/// The lists that a container gets.
pub(super) struct Lists<'a> {
    names: &'a [ListName],
    /// Whether the container named them: then they have to exist.
    are_named: bool,
}

impl<'a> Lists<'a> {
    /// Those that a container names, or those of the class.
    pub(super) fn of(named: &'a [ListName], spec: &'a RequestSpec) -> Self {
        let are_named = !named.is_empty();
        let names = if are_named {
            named
        } else {
            &spec.default_lists
        };
        Lists { names, are_named }
    }

    /// Looks up what the lists at `template` have, each at its own path.
    pub(super) fn look_up(
        &self,
        template: &PathTemplate,
        attributes: &Attributes,
        host: &dyn HostView,
        found: &mut FoundEdits,
    ) -> Result<(), DeviceError> {
        // A list of its own name is for every container, if there is one.
        let is_for_all = !template
            .template()
            .attributes()
            .any(|name| *name == AttributeName::list());
        if is_for_all {
            let list = template.fill(attributes)?;
            match read(&list, host) {
                Ok(paths) => paths
                    .into_iter()
                    .flatten()
                    .for_each(|path| add(path, host, found)),
                Err(reason) => found.files.push(file(list, Presence::Unfit(reason))),
            }
            return Ok(());
        }
        for name in self.names {
            let mut attributes = attributes.clone();
            attributes.insert(AttributeName::list(), name.to_string());
            let list = template.fill(&attributes)?;
            let unusable = match read(&list, host) {
                Ok(Some(paths)) => {
                    paths.into_iter().for_each(|path| add(path, host, found));
                    continue;
                }
                Ok(None) if !self.are_named => Presence::Optional,
                Ok(None) => Presence::Unfit(format!("{} does not exist", list.display())),
                Err(reason) => Presence::Unfit(reason),
            };
            found.files.push(file(list, unusable));
        }
        Ok(())
    }
}

/// The paths in a list; `None` if there is no such file.
fn read(list: &Path, host: &dyn HostView) -> Result<Option<Vec<PathBuf>>, String> {
    let shown = list.display();
    match host.entry(list) {
        Ok(None) => return Ok(None),
        Ok(Some(Entry::File)) => {}
        Ok(Some(entry)) => return Err(format!("{shown} is {entry}, not a list of files")),
        Err(error) => return Err(format!("cannot look up {shown}: {error}")),
    }
    // Who can change it can give files of root's to containers.
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
    for (at, line) in lines {
        let path = line.trim_end_matches('/');
        if !is_plain(path) {
            let (line, number) = (excerpt(line), at + 1);
            return Err(format!(
                "line {number} of {shown}: `{line}` is not an absolute path without `.` and `..`"
            ));
        }
        paths.push(PathBuf::from(path));
    }
    match paths.len() {
        0..=MAX_PATHS => Ok(Some(paths)),
        count => Err(format!(
            "{shown} has {count} paths; at most {MAX_PATHS} are read"
        )),
    }
}

/// Adds one path of a list, or those that match it. The host need not have it.
fn add(path: PathBuf, host: &dyn HostView, found: &mut FoundEdits) {
    let text = path.to_string_lossy();
    let pattern = PathPattern::try_from(text.clone().into_owned());
    if text.contains(['*', '?', '['])
        && !text.contains(['{', '}'])
        && let Ok(pattern) = pattern
    {
        let matches = search::matches(&pattern, &Attributes::new(), host, MAX_PATHS);
        let matches = matches.unwrap_or_default();
        return matches
            .into_iter()
            .for_each(|one| add_one(one.path, host, found));
    }
    add_one(path, host, found);
}

fn add_one(path: PathBuf, host: &dyn HostView, found: &mut FoundEdits) {
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
