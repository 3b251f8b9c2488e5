//! Predicts which files a plan will create in a container. The files are recorded before they are
//! created, so that the record is complete even if this process is killed.

use std::path::{Path, PathBuf};

use injection_plan::plan::{INJECTED_DIR, StepOwner};

use crate::live::container::is_device_node;
use device_class::host::ProgramAbi;
use hook::apply::{
    InjectedDir, MAX_LINK_DEPTH, OpenedAction, OpenedStep, find_image_directory, is_same_library,
};
use hook::attachment::{CreatedFile, CreatedFileKind, FileIdentity, merge_owners, to_st_rdev};
use hook::container::{self, ContainerNamespace, FileKind, read_link_target};

/// Returns the files that the opened steps of a plan will create in a container. The prediction
/// assumes that the files in `stale_files` are removed before.
pub(crate) fn list_planned_files(
    opened_steps: &[OpenedStep<'_>],
    namespace: &ContainerNamespace,
    stale_files: &[CreatedFile],
) -> container::Result<Vec<CreatedFile>> {
    // It is no error if a directory cannot be opened: no library names are added to this directory.
    let open_file = |path: &Path| namespace.open_file(path).ok().flatten();
    let is_directory =
        |path: &Path| open_file(path).is_some_and(|file| file.kind() == FileKind::Directory);
    let mut prediction = PlannedFiles {
        namespace,
        stale_files,
        native_library_dirs: Vec::new(),
        library_dirs_32bit: Vec::new(),
        injected_dir_32bit: None,
        files: Vec::new(),
    };
    for OpenedStep { action, .. } in opened_steps {
        if let OpenedAction::Loader(search) = action {
            let library_path = search.library_path_dirs.iter().map(PathBuf::as_path);
            prediction.native_library_dirs =
                [find_image_directory(ProgramAbi::Native, open_file)].into();
            prediction
                .native_library_dirs
                .extend(library_path.filter(|path| is_directory(path)));
            prediction.library_dirs_32bit =
                [find_image_directory(ProgramAbi::Bits32, open_file)].into();
            prediction.injected_dir_32bit = search.directory_32bit;
        }
    }
    for OpenedStep { action, owners, .. } in opened_steps {
        match prediction.add_step(action, owners) {
            // The hook skips such a step with a warning, as at the start of a container. So no file
            // is predicted for the step.
            Err(error) if is_optional_file(action) && error.is_path_unusable() => {}
            result => result?,
        }
    }
    Ok(prediction.files)
}

fn is_optional_file(action: &OpenedAction<'_>) -> bool {
    matches!(
        action,
        OpenedAction::File {
            is_optional: true,
            ..
        }
    )
}

/// The files that a plan will create in a container. They include the links and mounts for
/// libraries in the library directories of the image.
struct PlannedFiles<'a> {
    namespace: &'a ContainerNamespace,
    /// The files that are removed before the plan's files are created.
    stale_files: &'a [CreatedFile],
    /// The image's library directory for native programs, such as /usr/lib64, followed by the
    /// directories of the container's `LD_LIBRARY_PATH`.
    native_library_dirs: Vec<&'a Path>,
    /// The image's library directory for 32-bit programs.
    library_dirs_32bit: Vec<&'a Path>,
    /// The directory that contains the injected libraries for 32-bit programs.
    injected_dir_32bit: Option<&'a Path>,
    files: Vec<CreatedFile>,
}

impl PlannedFiles<'_> {
    fn add_step(
        &mut self,
        action: &OpenedAction<'_>,
        owners: &[StepOwner],
    ) -> container::Result<()> {
        let injected_dir = Path::new(INJECTED_DIR);
        let (path, kind) = match action {
            OpenedAction::Node {
                number,
                host_node_access,
                created_node_access: Some(access),
                path,
                ..
            } if self.namespace.can_create_device_nodes() => {
                let number = to_st_rdev(*number);
                if access != host_node_access {
                    (*path, CreatedFileKind::Node(number))
                } else {
                    // If the hook cannot create the node, it mounts the host's node at the same
                    // path. So both the node and the mount are recorded. Files are removed in
                    // reverse order: a mount is removed before a node.
                    self.add_file(path, CreatedFileKind::Node(number), owners)?;
                    (*path, CreatedFileKind::BindMountedNode(number))
                }
            }
            OpenedAction::MakeNode { path, number, .. } => {
                (*path, CreatedFileKind::Node(to_st_rdev(*number)))
            }
            OpenedAction::Node { path, number, .. } => {
                (*path, CreatedFileKind::BindMountedNode(to_st_rdev(*number)))
            }
            OpenedAction::Directory { source, path, .. } => {
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
                self.add_file(injected_dir, CreatedFileKind::Tmpfs, owners)?;
                let source = source.identity().numbers();
                for name in *names {
                    let library = path.with_file_name(name);
                    let needs_link = image_links.contains(name);
                    self.add_library_names(name, &library, source, needs_link, owners)?;
                }
                return Ok(());
            }
            OpenedAction::File { source, path, .. } => {
                let entry = self.namespace.open_entry(path)?;
                let old_link = entry.as_ref().and_then(read_link_target);
                if entry.is_some() && old_link.is_none() {
                    (*path, CreatedFileKind::Mount(source.identity().numbers()))
                } else {
                    self.add_file(injected_dir, CreatedFileKind::Tmpfs, owners)?;
                    let target = InjectedDir::to_injected_path(path);
                    (*path, CreatedFileKind::Link(target, old_link))
                }
            }
            // The step changes configuration files of the dynamic loader. They are not recorded,
            // because they are not restored when devices are detached. This is harmless: the
            // libraries that they name no longer exist then.
            OpenedAction::Loader(_) => return Ok(()),
        };
        self.add_file(path, kind, owners)
    }

    /// Predicts the files for one name of a library in the image's library directories. These are a
    /// symbolic link to `library`, or mounts over the image's files.
    ///
    /// Some of the predicted files may never be created. This is harmless, because only files that
    /// the hook created are removed.
    fn add_library_names(
        &mut self,
        name: &str,
        library: &Path,
        source: FileIdentity,
        needs_link: bool,
        owners: &[StepOwner],
    ) -> container::Result<()> {
        let is_32bit = self
            .injected_dir_32bit
            .is_some_and(|directory| library.starts_with(directory));
        let directories = if is_32bit {
            &self.library_dirs_32bit
        } else {
            &self.native_library_dirs
        };
        for (index, directory) in directories.clone().into_iter().enumerate() {
            let path = directory.join(name);
            let entry = self.namespace.open_entry(&path).ok().flatten();
            let mut old_target = entry.as_ref().and_then(read_link_target);
            let stale_file = self
                .stale_files
                .iter()
                .find(|stale_file| stale_file.path == path);
            let mut is_missing = entry.is_none();
            if let Some(CreatedFileKind::Link(_, old_link_target)) =
                stale_file.map(|stale_file| &stale_file.kind)
            {
                old_target.clone_from(old_link_target);
                is_missing = old_link_target.is_none();
            }
            if is_missing {
                if needs_link && index == 0 {
                    self.add_file(
                        &path,
                        CreatedFileKind::Link(library.to_owned(), None),
                        owners,
                    )?;
                }
                continue;
            }
            let Some(old_target) = old_target else {
                self.add_file(&path, CreatedFileKind::Mount(source), owners)?;
                continue;
            };
            let file = self.follow_links(directory, &old_target, name)?;
            if let Some(file) = &file {
                self.add_file(file, CreatedFileKind::Mount(source), owners)?;
            }
            // If the link leads to a file in another directory, the hook may replace the link
            // instead of covering that file. So the link is predicted as well.
            let is_link_kept = file.is_some_and(|file| file.parent() == Some(directory));
            if !is_link_kept && old_target != library {
                let link = CreatedFileKind::Link(library.to_owned(), Some(old_target));
                self.add_file(&path, link, owners)?;
            }
        }
        Ok(())
    }

    /// Follows a chain of symbolic links that begins in `directory` with the link target `target`,
    /// also to other directories. Returns the file at the end of the chain if it is a version of
    /// the library `name`.
    fn follow_links(
        &self,
        directory: &Path,
        target: &Path,
        name: &str,
    ) -> container::Result<Option<PathBuf>> {
        let mut path = directory.join(target);
        for _ in 0..MAX_LINK_DEPTH {
            // A target such as `..` has no name: it is a directory.
            let Some(file_name) = path.file_name() else {
                break;
            };
            let Some(entry) = self.namespace.open_entry(&path)? else {
                break;
            };
            match read_link_target(&entry) {
                Some(next_target) => path = path.with_file_name("").join(next_target),
                None if entry.kind() == FileKind::Regular && is_same_library(name, file_name) => {
                    return Ok(Some(path));
                }
                None => break,
            }
        }
        Ok(None)
    }

    /// Adds a file to the prediction. Before it, adds the directories of its path that do not
    /// exist.
    fn add_file(
        &mut self,
        path: &Path,
        kind: CreatedFileKind,
        owners: &[StepOwner],
    ) -> container::Result<()> {
        let mut missing_directories = Vec::new();
        for directory in path.ancestors().skip(1) {
            if self.namespace.open_file(directory)?.is_some() {
                break;
            }
            missing_directories.push(directory);
        }
        let stale_file = self
            .stale_files
            .iter()
            .find(|stale_file| stale_file.path == path);
        let entry = if stale_file.is_none() && missing_directories.is_empty() {
            self.namespace.open_entry(path)?
        } else {
            None
        };
        let entry_identity = entry.as_ref().map(|entry| entry.identity().numbers());
        let previous_identity =
            stale_file.map_or(entry_identity, |stale_file| stale_file.previous_identity);
        for directory in missing_directories.into_iter().rev() {
            self.push_file(directory, CreatedFileKind::Directory, None, owners);
        }
        let exists_already = match &kind {
            CreatedFileKind::Mount(source) => previous_identity == Some(*source),
            CreatedFileKind::Link(target, _) => {
                entry.as_ref().and_then(read_link_target).as_ref() == Some(target)
            }
            CreatedFileKind::Node(number) => {
                entry.is_some_and(|entry| is_device_node(&entry, *number))
            }
            _ => false,
        };
        if !exists_already {
            self.push_file(path, kind, previous_identity, owners);
        }
        Ok(())
    }

    fn push_file(
        &mut self,
        path: &Path,
        kind: CreatedFileKind,
        previous_identity: Option<FileIdentity>,
        owners: &[StepOwner],
    ) {
        let file = CreatedFile {
            path: path.to_owned(),
            kind,
            previous_identity,
            owners: owners.to_vec(),
        };
        match self
            .files
            .iter_mut()
            .find(|existing_file| existing_file.is_same_file(&file))
        {
            Some(existing_file) => merge_owners(&mut existing_file.owners, file.owners),
            None => self.files.push(file),
        }
    }
}
