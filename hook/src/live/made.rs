//! What attaching makes in a container's root: found before anything is made, so that a
//! record has it whatever happens meanwhile, and taken away again.
//!
//! The container runs and is hostile. What has a name now is removed only if it is what was
//! made, through one handle; what the container put in its place stays.

use std::path::{Path, PathBuf};

use device_class::device::DeviceNumber;
use injection_plan::plan::{Action, INJECTED, InjectionStep};
use nix::errno::Errno;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use serde::{Deserialize, Serialize};

use super::LiveError;
use crate::apply::{InjectedDir, OpenedAction, OpenedStep};
use crate::container::{
    self, ContainerNamespace, ContainerRoot, FileKind, Handle, Name, Parent, link_text,
};
use crate::mount;

/// A file's identity: file system, inode and device.
type Identity = [u64; 3];

/// How many mounts on one name are taken away at most.
const MAX_LAYERS: usize = 32;

/// One thing that is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) path: PathBuf,
    pub(crate) how: How,
    /// What had the name before.
    before: Option<Identity>,
    /// The devices or the class that it is for.
    #[serde(rename = "for")]
    pub(crate) why: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    /// This file of the host is mounted on the name.
    Mount(Identity),
    /// A tmpfs is.
    Tmpfs,
    /// The host's node of this device is mounted on the name.
    Bound(u64),
    /// A node of this device.
    Node(u64),
    /// A link with this text, in place of one with the other.
    Link(PathBuf, Option<PathBuf>),
    Directory,
}

impl Made {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.how == other.how
    }

    /// What the hook makes for devices, in the container that it is called for: so much of a
    /// plan's steps as follows them later.
    pub(crate) fn at_start(steps: &[InjectionStep]) -> Vec<Self> {
        let made = steps.iter().flat_map(|step| match &step.action {
            Action::Node { mount, number, .. } => Self::node(&mount.path, *number, step).into(),
            Action::MakeNode { path, number, .. } => Self::node(path, *number, step).into(),
            Action::Link { path, target } => {
                vec![Self::for_step(path, How::Link(target.clone(), None), step)]
            }
            _ => Vec::new(),
        });
        made.collect()
    }

    /// A node that is for what a step is for: the host's, or one of its own if that is the engine's way
    /// or the class's, unless the container has users of its own.
    pub(crate) fn node(path: &Path, number: DeviceNumber, step: &InjectionStep) -> [Self; 2] {
        // The host's may be on the other.
        let hows = [How::Node(raw(number)), How::Bound(raw(number))];
        hows.map(|how| Self::for_step(path, how, step))
    }

    fn for_step(path: &Path, how: How, step: &InjectionStep) -> Self {
        Made {
            path: path.to_owned(),
            how,
            before: None,
            why: step.users.clone(),
        }
    }

    pub(crate) fn is_node_or_link(&self) -> bool {
        matches!(self.how, How::Bound(_) | How::Node(_) | How::Link(..))
    }

    /// Whether it is what a step makes.
    pub(crate) fn is_of(&self, step: &InjectionStep) -> bool {
        match (&step.action, &self.how) {
            (Action::Node { mount, number, .. }, How::Bound(known) | How::Node(known)) => {
                mount.path == self.path && raw(*number) == *known
            }
            (Action::MakeNode { path, number, .. }, How::Node(known)) => {
                *path == self.path && raw(*number) == *known
            }
            (Action::Link { path, target }, How::Link(text, _)) => {
                *path == self.path && target == text
            }
            (Action::Directory(mount) | Action::File(mount), How::Mount(_)) => {
                mount.path == self.path
            }
            (Action::File(mount), How::Link(text, _)) => {
                mount.path == self.path && InjectedDir::place_of(&mount.path) == *text
            }
            (Action::File(_) | Action::Library { .. }, How::Tmpfs) => {
                self.path == Path::new(INJECTED)
            }
            (Action::Mask { path, .. }, How::Tmpfs) => *path == self.path,
            (
                Action::Node { mount: at, .. } | Action::Directory(at) | Action::File(at),
                How::Directory,
            ) => at.path.starts_with(&self.path),
            (Action::MakeNode { path, .. } | Action::Link { path, .. }, How::Directory) => {
                path.starts_with(&self.path)
            }
            _ => false,
        }
    }

    /// What the sources of a plan will be made into, once `stale` is taken away.
    pub(crate) fn of(
        ready: &[OpenedStep<'_>],
        namespace: &ContainerNamespace,
        stale: &[Made],
    ) -> container::Result<Vec<Self>> {
        let mut found = Found {
            namespace,
            stale,
            made: Vec::new(),
        };
        for OpenedStep {
            action: what,
            users,
            ..
        } in ready
        {
            let why = users.to_vec();
            let injected = Path::new(INJECTED);
            let (path, how) = match what {
                OpenedAction::Node {
                    number,
                    own: Some(_),
                    path,
                    source: _,
                } if namespace.can_make_devices() => (*path, How::Node(raw(*number))),
                OpenedAction::MakeNode { path, number, .. } => (*path, How::Node(raw(*number))),
                OpenedAction::Node { path, number, .. } => (*path, How::Bound(raw(*number))),
                OpenedAction::Directory { source, path } => {
                    (*path, How::Mount(source.identity().numbers()))
                }
                OpenedAction::Link { path, target } => {
                    (*path, How::Link((*target).to_owned(), None))
                }
                OpenedAction::Mask(mask) => (mask.path, How::Tmpfs),
                OpenedAction::Library { .. } => (injected, How::Tmpfs),
                OpenedAction::File { source, path } => {
                    let entry = namespace.entry(path)?;
                    let old = entry.as_ref().and_then(link_text);
                    match entry.is_none() || old.is_some() {
                        false => (*path, How::Mount(source.identity().numbers())),
                        true => {
                            let why = why.clone();
                            found.add(injected, How::Tmpfs, why)?;
                            (*path, How::Link(InjectedDir::place_of(path), old))
                        }
                    }
                }
                // The files of the loader stay: what they name is not found any more.
                OpenedAction::Loader(_) => continue,
            };
            found.add(path, how, why)?;
        }
        Ok(found.made)
    }

    /// Takes it away, if it is still there.
    pub(crate) fn undo(&self, root: &ContainerRoot) -> Result<(), LiveError> {
        let parent = match root.existing_parent(&self.path) {
            // A container must not keep the rest by what it puts in the way of one path.
            Err(error) if error.leads_nowhere() => None,
            parent => parent?,
        };
        let Some((parent, name)) = parent else {
            return Ok(());
        };
        match &self.how {
            How::Mount(shows) => {
                if let Some(top) = mounted(root, &parent, name)?
                    && top.identity().numbers() == *shows
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_placeholder(root, &parent, name)
            }
            How::Bound(number) => {
                if let Some(top) = mounted(root, &parent, name)?
                    && is_node(&top, *number)
                {
                    mount::unmount(&top, &self.path, root.proc())?;
                }
                self.remove_placeholder(root, &parent, name)
            }
            How::Tmpfs => {
                for _ in 0..MAX_LAYERS {
                    match mounted(root, &parent, name)? {
                        Some(top)
                            if Some(top.identity().numbers()) != self.before
                                && fstatfs(&top)
                                    .is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC) =>
                        {
                            mount::unmount(&top, &self.path, root.proc())?;
                        }
                        _ => break,
                    }
                }
                self.remove_placeholder(root, &parent, name)
            }
            How::Node(number) => match parent.open(name)? {
                Some(found)
                    if is_node(&found, *number) && !parent.is_mounted(&found, root.proc())? =>
                {
                    Ok(parent.remove(name, found.kind())?)
                }
                _ => Ok(()),
            },
            How::Link(text, old) => match parent.open(name)? {
                Some(found) if link_text(&found).as_ref() == Some(text) => {
                    let done = match old {
                        Some(old) => parent.redirect_link(name, old),
                        None => parent.remove(name, FileKind::Symlink),
                    };
                    Ok(done?)
                }
                _ => Ok(()),
            },
            How::Directory => self.remove_placeholder(root, &parent, name),
        }
    }

    /// Removes the empty file or directory that was made for it. One that is not empty is
    /// somebody else's by now.
    fn remove_placeholder(
        &self,
        root: &ContainerRoot,
        parent: &Parent,
        name: Name<'_>,
    ) -> Result<(), LiveError> {
        let Some(found) = parent.open(name)? else {
            return Ok(());
        };
        // What was there before may have been replaced until it was made.
        if self.before == Some(found.identity().numbers()) {
            return Ok(());
        }
        let is_empty = match found.kind() {
            FileKind::Regular => found.stat().st_size == 0,
            kind => kind == FileKind::Directory,
        };
        if !is_empty || parent.is_mounted(&found, root.proc())? {
            return Ok(());
        }
        match parent.remove(name, found.kind()) {
            Err(container::Error::File(error))
                if [Errno::ENOTEMPTY, Errno::EBUSY].contains(&error.errno()) =>
            {
                Ok(())
            }
            removed => Ok(removed?),
        }
    }
}

/// What is mounted on the name.
fn mounted(
    root: &ContainerRoot,
    parent: &Parent,
    name: Name<'_>,
) -> container::Result<Option<Handle>> {
    let Some(found) = parent.open(name)? else {
        return Ok(None);
    };
    Ok(parent.is_mounted(&found, root.proc())?.then_some(found))
}

/// What will be made.
struct Found<'a> {
    namespace: &'a ContainerNamespace,
    /// What is taken away before.
    stale: &'a [Made],
    made: Vec<Made>,
}

impl Found<'_> {
    /// Adds what is made for a path, with the directories that it lacks.
    fn add(&mut self, path: &Path, how: How, why: Vec<String>) -> container::Result<()> {
        let mut missing = Vec::new();
        for directory in path.ancestors().skip(1) {
            if self.namespace.look(directory)?.is_some() {
                break;
            }
            missing.push(directory.to_owned());
        }
        let stale = self.stale.iter().find(|stale| stale.path == path);
        let entry = match (stale, missing.is_empty()) {
            (None, true) => self.namespace.entry(path)?,
            _ => None,
        };
        let entry_is = entry.as_ref().map(|it| it.identity().numbers());
        let before = stale.map_or(entry_is, |stale| stale.before);
        // A link, node or file that is there is not made.
        let is_made = match &how {
            How::Mount(shows) => before != Some(*shows),
            How::Link(text, _) => entry.as_ref().and_then(link_text).as_ref() != Some(text),
            How::Node(number) => !entry.is_some_and(|it| is_node(&it, *number)),
            _ => true,
        };
        let directories = missing.into_iter().rev().map(|path| (path, How::Directory));
        let itself = is_made.then(|| (path.to_owned(), how));
        for (path, how) in directories.chain(itself) {
            let made = Made {
                before: before.filter(|_| how != How::Directory),
                path,
                how,
                why: why.clone(),
            };
            match self.made.iter_mut().find(|known| known.is_same(&made)) {
                Some(known) => known.why.extend(made.why),
                None => self.made.push(made),
            }
        }
        Ok(())
    }
}

fn is_node(found: &Handle, number: u64) -> bool {
    found.kind().is_device() && found.identity().numbers()[2] == number
}

fn raw(number: DeviceNumber) -> u64 {
    nix::sys::stat::makedev(number.major.into(), number.minor.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::container::Resolver;

    #[test]
    fn an_empty_file_stays_only_if_it_was_there_before() {
        for is_the_images in [true, false] {
            let top = tempfile::tempdir().unwrap();
            let file = top.path().join("device");
            fs::write(&file, "").unwrap();
            let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
            let path = PathBuf::from("/device");
            let (parent, name) = root.existing_parent(&path).unwrap().unwrap();
            let it_is = parent.open(name).unwrap().unwrap().identity().numbers();
            // A directory was there, say, which the container removed meanwhile.
            let another = [it_is[0], it_is[1] + 1, it_is[2]];
            let made = Made {
                path: path.clone(),
                how: How::Bound(7),
                before: Some(if is_the_images { it_is } else { another }),
                why: Vec::new(),
            };
            made.undo(&root).unwrap();
            assert_eq!(file.exists(), is_the_images);
        }
    }
}
