//! Determines the files that a plan will create in a container, before anything is created, so
//! that the attachment record has them even if this process is killed.

use std::path::{Path, PathBuf};

use injection_plan::plan::{INJECTED, StepUser};

use crate::apply::{
    InjectedDir, MAX_LINKS, OpenedAction, OpenedStep, find_image_directory, is_same_library,
};
use crate::live::container::is_device_node;
use crate::live::record::{CreatedFile, CreatedFileKind, FileIdentity, merge_users, to_st_rdev};
use device_class::host::Programs;

use crate::container::{self, ContainerNamespace, FileKind, read_link_target};

/// Returns the files that the opened steps of a plan will create in a container, once the files in
/// `stale` are removed.
pub(in crate::live) fn predict_files(
    ready: &[OpenedStep<'_>],
    namespace: &ContainerNamespace,
    stale: &[CreatedFile],
) -> container::Result<Vec<CreatedFile>> {
    // A directory that cannot be opened gets no names of libraries. This is no error.
    let is_directory = |path: &Path| {
        let found = namespace.open_file(path).ok().flatten();
        found.is_some_and(|found| found.kind() == FileKind::Directory)
    };
    let mut prediction = FilePrediction {
        namespace,
        stale,
        native_directories: Vec::new(),
        directories_32bit: Vec::new(),
        directory_32bit: None,
        files: Vec::new(),
    };
    for OpenedStep { action, .. } in ready {
        if let OpenedAction::Loader(search) = action {
            let searched = search.library_path.iter().map(PathBuf::as_path);
            prediction.native_directories =
                [find_image_directory(Programs::Native, is_directory)].into();
            prediction
                .native_directories
                .extend(searched.filter(|path| is_directory(path)));
            prediction.directories_32bit =
                [find_image_directory(Programs::Bits32, is_directory)].into();
            prediction.directory_32bit = search.directory_32bit;
        }
    }
    for OpenedStep { action, users, .. } in ready {
        prediction.add_step(action, users)?;
    }
    Ok(prediction.files)
}

/// The files that a plan will create in a container, with the directories to which names are added.
struct FilePrediction<'a> {
    namespace: &'a ContainerNamespace,
    /// The files that are removed before.
    stale: &'a [CreatedFile],
    /// The image's library directory, followed by those of the container's `LD_LIBRARY_PATH`.
    native_directories: Vec<&'a Path>,
    /// The image's library directory for 32-bit programs.
    directories_32bit: Vec<&'a Path>,
    /// The directory of the injected libraries for 32-bit programs.
    directory_32bit: Option<&'a Path>,
    files: Vec<CreatedFile>,
}

impl FilePrediction<'_> {
    fn add_step(&mut self, action: &OpenedAction<'_>, users: &[StepUser]) -> container::Result<()> {
        let injected = Path::new(INJECTED);
        let (path, kind) = match action {
            OpenedAction::Node {
                number,
                own: Some(_),
                path,
                source: _,
            } if self.namespace.can_make_devices() => {
                (*path, CreatedFileKind::Node(to_st_rdev(*number)))
            }
            OpenedAction::MakeNode { path, number, .. } => {
                (*path, CreatedFileKind::Node(to_st_rdev(*number)))
            }
            OpenedAction::Node { path, number, .. } => {
                (*path, CreatedFileKind::BoundNode(to_st_rdev(*number)))
            }
            OpenedAction::Directory { source, path } => {
                (*path, CreatedFileKind::Mount(source.identity().numbers()))
            }
            OpenedAction::Link { path, target } => {
                (*path, CreatedFileKind::Link((*target).to_owned(), None))
            }
            OpenedAction::Mask(mask) => (mask.path, CreatedFileKind::Tmpfs),
            OpenedAction::Library {
                source,
                path,
                names,
                image_links,
                ..
            } => {
                self.add_file(injected, CreatedFileKind::Tmpfs, users)?;
                let source = source.identity().numbers();
                for name in *names {
                    let place = path.with_file_name(name);
                    let gets_link = image_links.contains(name);
                    self.add_image_names(name, &place, source, gets_link, users)?;
                }
                return Ok(());
            }
            OpenedAction::File { source, path } => {
                let entry = self.namespace.open_entry(path)?;
                let old_link = entry.as_ref().and_then(read_link_target);
                if entry.is_some() && old_link.is_none() {
                    (*path, CreatedFileKind::Mount(source.identity().numbers()))
                } else {
                    self.add_file(injected, CreatedFileKind::Tmpfs, users)?;
                    let place = InjectedDir::inner_path(path);
                    (*path, CreatedFileKind::Link(place, old_link))
                }
            }
            // The changed files of the loader are not recorded, because they stay. They do no harm:
            // the libraries that they name are not found after the removal.
            OpenedAction::Loader(_) => return Ok(()),
        };
        self.add_file(path, kind, users)
    }

    /// Adds the files for one name of a library in the directories of the image: a link to `place`,
    /// or mounts over the image's files. Files may be added that are not created later. This does no
    /// harm, because a file is removed only if it is the created one.
    fn add_image_names(
        &mut self,
        name: &str,
        place: &Path,
        source: FileIdentity,
        gets_link: bool,
        users: &[StepUser],
    ) -> container::Result<()> {
        let is_32bit = self.directory_32bit.is_some_and(|it| place.starts_with(it));
        let directories = if is_32bit {
            &self.directories_32bit
        } else {
            &self.native_directories
        };
        for (index, directory) in directories.clone().into_iter().enumerate() {
            let path = directory.join(name);
            let found = self.namespace.open_entry(&path).ok().flatten();
            let mut text = found.as_ref().and_then(read_link_target);
            let stale = self.stale.iter().find(|stale| stale.path == path);
            let mut is_missing = found.is_none();
            if let Some(CreatedFileKind::Link(_, old)) = stale.map(|stale| &stale.kind) {
                text.clone_from(old);
                is_missing = old.is_none();
            }
            if is_missing {
                if gets_link && index == 0 {
                    self.add_file(&path, CreatedFileKind::Link(place.to_owned(), None), users)?;
                }
                continue;
            }
            let Some(text) = text else {
                self.add_file(&path, CreatedFileKind::Mount(source), users)?;
                continue;
            };
            if let Some(file) = self.follow_links(directory, &text, name)? {
                self.add_file(&file, CreatedFileKind::Mount(source), users)?;
            } else if text != place {
                let link = CreatedFileKind::Link(place.to_owned(), Some(text));
                self.add_file(&path, link, users)?;
            }
        }
        Ok(())
    }

    /// Returns the file in the same directory to which a link with this text leads, if it is the
    /// same library in another version.
    fn follow_links(
        &self,
        directory: &Path,
        text: &Path,
        name: &str,
    ) -> container::Result<Option<PathBuf>> {
        let mut text = text.to_owned();
        for _ in 0..MAX_LINKS {
            if text.components().count() != 1 || text.is_absolute() {
                break;
            }
            let path = directory.join(&text);
            let Some(found) = self.namespace.open_entry(&path)? else {
                break;
            };
            match read_link_target(&found) {
                Some(next) => text = next,
                None if is_same_library(name, text.as_os_str()) => return Ok(Some(path)),
                None => break,
            }
        }
        Ok(None)
    }

    /// Adds a file, and before it the directories of its path that do not exist.
    fn add_file(
        &mut self,
        path: &Path,
        kind: CreatedFileKind,
        users: &[StepUser],
    ) -> container::Result<()> {
        let mut missing = Vec::new();
        for directory in path.ancestors().skip(1) {
            if self.namespace.open_file(directory)?.is_some() {
                break;
            }
            missing.push(directory);
        }
        let stale = self.stale.iter().find(|stale| stale.path == path);
        let entry = if stale.is_none() && missing.is_empty() {
            self.namespace.open_entry(path)?
        } else {
            None
        };
        let entry_identity = entry.as_ref().map(|it| it.identity().numbers());
        let before = stale.map_or(entry_identity, |stale| stale.before);
        for directory in missing.into_iter().rev() {
            self.push_file(directory, CreatedFileKind::Directory, None, users);
        }
        let exists_already = match &kind {
            CreatedFileKind::Mount(source) => before == Some(*source),
            CreatedFileKind::Link(text, _) => {
                entry.as_ref().and_then(read_link_target).as_ref() == Some(text)
            }
            CreatedFileKind::Node(number) => entry.is_some_and(|it| is_device_node(&it, *number)),
            _ => false,
        };
        if !exists_already {
            self.push_file(path, kind, before, users);
        }
        Ok(())
    }

    fn push_file(
        &mut self,
        path: &Path,
        kind: CreatedFileKind,
        before: Option<FileIdentity>,
        users: &[StepUser],
    ) {
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
