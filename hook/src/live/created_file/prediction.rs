//! Determines the files that a plan will create in a container, before anything is created, so
//! that the attachment record has them even if this process is killed.

use std::path::Path;

use injection_plan::plan::INJECTED;

use super::{CreatedFile, CreatedKind, Identity, is_node, to_raw};
use crate::apply::{InjectedDir, OpenedAction, OpenedStep};
use crate::container::{self, ContainerNamespace, link_text};
use crate::live::attachment_record::merge_users;

/// Returns the files that the opened steps of a plan will create in a container, once the files in
/// `stale` are removed.
pub(in crate::live) fn predict_files(
    ready: &[OpenedStep<'_>],
    namespace: &ContainerNamespace,
    stale: &[CreatedFile],
) -> container::Result<Vec<CreatedFile>> {
    let mut prediction = Prediction {
        namespace,
        stale,
        files: Vec::new(),
    };
    for OpenedStep { action, users, .. } in ready {
        prediction.add_step(action, users)?;
    }
    Ok(prediction.files)
}

/// The files that will be created.
struct Prediction<'a> {
    namespace: &'a ContainerNamespace,
    /// The files that are removed before.
    stale: &'a [CreatedFile],
    files: Vec<CreatedFile>,
}

impl Prediction<'_> {
    fn add_step(&mut self, action: &OpenedAction<'_>, users: &[String]) -> container::Result<()> {
        let injected = Path::new(INJECTED);
        let (path, kind) = match action {
            OpenedAction::Node {
                number,
                own: Some(_),
                path,
                source: _,
            } if self.namespace.can_make_devices() => (*path, CreatedKind::Node(to_raw(*number))),
            OpenedAction::MakeNode { path, number, .. } => {
                (*path, CreatedKind::Node(to_raw(*number)))
            }
            OpenedAction::Node { path, number, .. } => (*path, CreatedKind::Bound(to_raw(*number))),
            OpenedAction::Directory { source, path } => {
                (*path, CreatedKind::Mount(source.identity().numbers()))
            }
            OpenedAction::Link { path, target } => {
                (*path, CreatedKind::Link((*target).to_owned(), None))
            }
            OpenedAction::Mask(mask) => (mask.path, CreatedKind::Tmpfs),
            OpenedAction::Library { .. } => (injected, CreatedKind::Tmpfs),
            OpenedAction::File { source, path } => {
                let entry = self.namespace.entry(path)?;
                let old_link = entry.as_ref().and_then(link_text);
                if entry.is_some() && old_link.is_none() {
                    (*path, CreatedKind::Mount(source.identity().numbers()))
                } else {
                    self.add(injected, CreatedKind::Tmpfs, users)?;
                    let place = InjectedDir::place_of(path);
                    (*path, CreatedKind::Link(place, old_link))
                }
            }
            // The loader's files stay. The libraries in them are not found any more.
            OpenedAction::Loader(_) => return Ok(()),
        };
        self.add(path, kind, users)
    }

    /// Adds a file, and before it the directories that its path lacks.
    fn add(&mut self, path: &Path, kind: CreatedKind, users: &[String]) -> container::Result<()> {
        let mut missing = Vec::new();
        for directory in path.ancestors().skip(1) {
            if self.namespace.look(directory)?.is_some() {
                break;
            }
            missing.push(directory);
        }
        let stale = self.stale.iter().find(|stale| stale.path == path);
        let entry = if stale.is_none() && missing.is_empty() {
            self.namespace.entry(path)?
        } else {
            None
        };
        let entry_identity = entry.as_ref().map(|it| it.identity().numbers());
        let before = stale.map_or(entry_identity, |stale| stale.before);
        for directory in missing.into_iter().rev() {
            self.push(directory, CreatedKind::Directory, None, users);
        }
        let is_there_already = match &kind {
            CreatedKind::Mount(source) => before == Some(*source),
            CreatedKind::Link(text, _) => entry.as_ref().and_then(link_text).as_ref() == Some(text),
            CreatedKind::Node(number) => entry.is_some_and(|it| is_node(&it, *number)),
            _ => false,
        };
        if !is_there_already {
            self.push(path, kind, before, users);
        }
        Ok(())
    }

    fn push(&mut self, path: &Path, kind: CreatedKind, before: Option<Identity>, users: &[String]) {
        let file = CreatedFile {
            path: path.to_owned(),
            kind,
            before,
            users: users.to_vec(),
        };
        match self.files.iter_mut().find(|known| known.is_same(&file)) {
            Some(known) => merge_users(&mut known.users, file.users),
            None => self.files.push(file),
        }
    }
}
