//! Adds the names of injected libraries to the library directories of the container's image.
//!
//! Some programs do not use the loader's cache or its configuration to find a library: they open a
//! path, search a directory, have a loader of their own, or are linked with `-l`. Others find an
//! old library of the image first, because its directory is in `LD_LIBRARY_PATH`. So this module
//! creates links to the injected libraries in the image's library directory. If the image has files
//! with the same names, it mounts the injected libraries over them.
//!
//! The image may be hostile. So each directory is opened once. Its entries are changed through the
//! open handle, by single file names. The devices work without these names, so a failure is only a
//! warning.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use device_class::host::ProgramAbi;

use super::ApplyError;
use super::image_directory::find_image_directory;
use crate::container::{
    self, ContainerRoot, FileKind, FileName, Handle, Identity, Parent, read_link_target,
};
use crate::mount::{self, Mounter};

/// The maximum number of symbolic links that are followed from a name to a library, so that a loop
/// of links ends. Packages have at most two: `libx.so` leads to `libx.so.1`, which leads to
/// `libx.so.1.2`.
pub const MAX_LINK_DEPTH: usize = 4;

/// The maximum number of paths that a warning lists. If there are more, the warning contains only
/// the number of the others.
const MAX_LISTED_PATHS: usize = 3;

/// An injected library, and the file names that will lead to it in the library directories of the
/// image.
pub(super) struct LibraryNames<'p> {
    /// The path of the library in the container, such as `/usr/lib/boathook/lib/libx.so.1.2`.
    pub(super) path: &'p Path,
    pub(super) identity: Identity,
    /// The file names by which programs open the library, such as `libx.so` and `libx.so.1`.
    pub(super) names: &'p BTreeSet<String>,
    /// The subset of `names` for which links are created. The other names only replace existing
    /// files of the image.
    pub(super) image_links: &'p BTreeSet<String>,
}

/// The library directories of a container. The names of injected libraries are added in
/// `library_path_dirs` and in the image's own directory, but never in `dirs_with_newer_libraries`.
pub(super) struct ImageDirectories<'p> {
    /// The directories in the container's `LD_LIBRARY_PATH`. Loaders search them first.
    pub(super) library_path_dirs: &'p [PathBuf],
    /// The directory that contains the injected libraries for 32-bit programs, such as
    /// `/usr/lib/boathook/lib32`.
    pub(super) directory_32bit: Option<&'p Path>,
    /// The directories of the image whose libraries are newer than the host's. The container's
    /// programs use these newer libraries, so nothing is added to the directories.
    pub(super) dirs_with_newer_libraries: Vec<PathBuf>,
}

/// An open directory of the image in which names of injected libraries are added.
struct ImageDirectory {
    handle: Parent,
    identity: Identity,
    path: PathBuf,
    /// Whether links are created for names that the directory does not have. True only for the
    /// image's own library directory.
    should_create_links: bool,
    /// Whether the dynamic loader searches this directory before the directories of its
    /// configuration files. True if the directory is in `LD_LIBRARY_PATH`.
    is_searched_before_config: bool,
}

/// The file to which a symbolic link of the image leads.
enum ImageLinkTarget {
    /// The injected library.
    InjectedLibrary,
    /// The image's own version of the library, in the same directory as the link. The value is the
    /// file name of this version, such as `libx.so.1.2`.
    LibraryInSameDir(OsString),
    /// A file of another library or in another directory, or no file at all.
    UnrelatedPath,
}

/// Makes the names of injected libraries lead to these libraries in directories of the image, by
/// links or by mounts. If a name cannot be added, the path and the reason are stored in
/// `name_problems`.
struct LibraryNameWriter<'a, 'r> {
    root: &'r ContainerRoot,
    mounter: &'a mut Mounter,
    /// The identities of the directories whose libraries are newer than the host's. Nothing is
    /// mounted in them.
    newer_dir_identities: Vec<Identity>,
    name_problems: NameProblems,
}

/// The paths at which a name could not be added or a directory could not be opened, each with the
/// reason. They become one warning.
type NameProblems = Vec<(PathBuf, String)>;

/// Makes the names of injected libraries, such as `libx.so.1`, lead to these libraries in the
/// directories of the image: by symbolic links, or by mounts over files of the image. Adds one
/// warning about all names for which this fails.
pub(super) fn add_library_names(
    root: &ContainerRoot,
    mounter: &mut Mounter,
    libraries: &[LibraryNames<'_>],
    directories: &ImageDirectories<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let is_32bit = |library: &&LibraryNames<'_>| {
        let directory = directories.directory_32bit;
        directory.is_some_and(|directory| library.path.starts_with(directory))
    };
    let mut name_problems = NameProblems::new();
    let directory_32bit = if libraries.iter().any(|library| is_32bit(&library)) {
        open_library_directory(root, ProgramAbi::Bits32, &mut name_problems)
    } else {
        None
    };
    let mut newer_dir_identities = Vec::new();
    for path in &directories.dirs_with_newer_libraries {
        let directory = open_image_directory(root, path, &mut name_problems);
        newer_dir_identities.extend(directory.map(|directory| directory.identity));
    }
    let native_dirs = open_native_directories(
        root,
        directories,
        &newer_dir_identities,
        directory_32bit.as_ref(),
        &mut name_problems,
    );
    let mut writer = LibraryNameWriter {
        root,
        mounter,
        newer_dir_identities,
        name_problems,
    };
    for directory in &native_dirs {
        for library in libraries.iter().filter(|library| !is_32bit(library)) {
            writer.add_library(directory, library)?;
        }
    }
    // Native and 32-bit programs may have the same library directory, such as `/usr/lib`. In this
    // case, only the names of native libraries are added there.
    let is_native = |directory: &ImageDirectory| {
        native_dirs
            .iter()
            .any(|native| native.identity == directory.identity)
    };
    if let Some(directory) = directory_32bit.filter(|directory| !is_native(directory)) {
        for library in libraries.iter().filter(is_32bit) {
            writer.add_library(&directory, library)?;
        }
    }
    warnings.extend(describe_name_problems(&writer.name_problems));
    Ok(())
}

/// Opens the image's library directory and the directories of `LD_LIBRARY_PATH`. If several paths
/// lead to one directory, returns this directory once. Leaves out directories whose libraries are
/// newer than the host's. A directory in `LD_LIBRARY_PATH` is also left out if it is that of 32-bit
/// programs.
fn open_native_directories(
    root: &ContainerRoot,
    directories: &ImageDirectories<'_>,
    newer_dir_identities: &[Identity],
    directory_32bit: Option<&ImageDirectory>,
    name_problems: &mut NameProblems,
) -> Vec<ImageDirectory> {
    let mut native_dirs = Vec::from_iter(open_library_directory(
        root,
        ProgramAbi::Native,
        name_problems,
    ));
    if let Some(first_directory) = native_dirs.first_mut() {
        first_directory.should_create_links = true;
    }
    let mut excluded_identities = newer_dir_identities.to_vec();
    native_dirs.retain(|directory| !excluded_identities.contains(&directory.identity));
    excluded_identities.extend(directory_32bit.map(|directory| directory.identity));
    for path in directories.library_path_dirs {
        let Some(directory) = open_image_directory(root, path, name_problems) else {
            continue;
        };
        let mut known_directories = native_dirs.iter_mut();
        match known_directories
            .find(|known_directory| known_directory.identity == directory.identity)
        {
            Some(known_directory) => known_directory.is_searched_before_config = true,
            None if excluded_identities.contains(&directory.identity) => {}
            None => native_dirs.push(ImageDirectory {
                is_searched_before_config: true,
                ..directory
            }),
        }
    }
    native_dirs
}

/// Opens the image's library directory for native or for 32-bit programs. A directory that cannot
/// be opened is skipped, and is added to `name_problems` with the reason.
fn open_library_directory(
    root: &ContainerRoot,
    programs: ProgramAbi,
    name_problems: &mut NameProblems,
) -> Option<ImageDirectory> {
    let path = find_image_directory(programs, |path| match root.resolve(path) {
        Ok(file) => file,
        Err(error) => {
            add_directory_problem(path, &error, name_problems);
            None
        }
    });
    open_image_directory(root, path, name_problems)
}

/// Opens a directory of the image. Returns `None` if the path does not lead to a directory.
///
/// A directory that cannot be opened is added to `name_problems`, and is no error. For example, a
/// FUSE mount may deny access even to root.
fn open_image_directory(
    root: &ContainerRoot,
    path: &Path,
    name_problems: &mut NameProblems,
) -> Option<ImageDirectory> {
    let result = root.open_directory_as_parent(path).and_then(|parent| {
        let identity = parent.as_ref().map(Parent::identity).transpose()?;
        Ok(parent.zip(identity))
    });
    match result {
        Ok(parent) => parent.map(|(parent, identity)| ImageDirectory {
            handle: parent,
            identity,
            path: path.to_owned(),
            should_create_links: false,
            is_searched_before_config: false,
        }),
        Err(error) => {
            add_directory_problem(path, &error, name_problems);
            None
        }
    }
}

/// Adds a directory and the reason why it cannot be opened to `name_problems`. A path that leads to
/// another kind of file is no problem, because an image need not have the directory.
fn add_directory_problem(path: &Path, error: &container::Error, name_problems: &mut NameProblems) {
    if !error.is_not_directory_error() {
        name_problems.push((path.to_owned(), crate::log::format_error_chain(error)));
    }
}

impl LibraryNameWriter<'_, '_> {
    fn add_library(
        &mut self,
        directory: &ImageDirectory,
        library: &LibraryNames<'_>,
    ) -> Result<(), ApplyError> {
        for name in library.names {
            let needs_link = directory.should_create_links && library.image_links.contains(name);
            match self.add_name(directory, library, name, needs_link) {
                Ok(()) => {}
                Err(
                    error @ ApplyError::Mount(
                        mount::Error::Shared { .. }
                        | mount::Error::NotAttached { .. }
                        | mount::Error::System { .. }
                        | mount::Error::Removed { .. },
                    ),
                )
                | Err(error @ ApplyError::Container(_)) => {
                    let reason = crate::log::format_error_chain(&error);
                    self.name_problems.push((directory.path.join(name), reason));
                }
                // After any other error, the container may have a mount without its restrictions,
                // such as read-only. So the container must not start.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes the file name `name` in a directory of the image lead to the injected library. If the
    /// image has no file with this name, creates a link only if `needs_link` is true.
    fn add_name(
        &mut self,
        directory: &ImageDirectory,
        library: &LibraryNames<'_>,
        name: &str,
        needs_link: bool,
    ) -> Result<(), ApplyError> {
        let parent = &directory.handle;
        let entry = FileName::new(name)?;
        let library_path = library.path.with_file_name(name);
        let mut link_result = Ok(());
        if needs_link {
            link_result = match parent.symlink(entry, &library_path) {
                Ok(()) => return Ok(()),
                Err(container::Error::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let Some(image_file) = parent.open(entry)? else {
            return Ok(link_result?);
        };
        match image_file.kind() {
            FileKind::Regular => self.mount_over_file(parent, entry, &image_file, library),
            FileKind::Symlink => match follow_link(parent, image_file, &library_path, name)? {
                ImageLinkTarget::InjectedLibrary => Ok(()),
                ImageLinkTarget::LibraryInSameDir(file) => {
                    let file = FileName::new(&file)?;
                    match parent.open(file)? {
                        Some(image_file) => {
                            self.mount_over_file(parent, file, &image_file, library)
                        }
                        None => Ok(()),
                    }
                }
                ImageLinkTarget::UnrelatedPath => {
                    let hides_library = directory.is_searched_before_config
                        && self.leads_to_other_file(&directory.path.join(name), library);
                    let must_replace = needs_link || hides_library;
                    if must_replace
                        && !self.mount_over_target(&directory.path.join(name), library)?
                    {
                        parent.replace_symlink_target(entry, &library_path)?;
                    }
                    Ok(())
                }
            },
            found_kind => Err(container::Error::AlreadyExists {
                path: directory.path.join(name),
                found_kind,
            }
            .into()),
        }
    }

    /// Mounts the injected library over a file of the image. Does nothing if the file is already
    /// the library, because the hook may run twice.
    fn mount_over_file(
        &mut self,
        parent: &Parent,
        name: FileName<'_>,
        image_file: &Handle,
        library: &LibraryNames<'_>,
    ) -> Result<(), ApplyError> {
        if image_file.identity() == library.identity {
            return Ok(());
        }
        let source = self.root.resolve(library.path)?;
        let source = source.filter(|source| source.identity() == library.identity);
        let target = parent.open_mount_point(name, FileKind::Regular)?;
        if let (Some(source), Some(target)) = (source, target) {
            self.mounter.attach_copy(&source, library.path, &target)?;
        }
        Ok(())
    }

    /// Mounts the injected library over the file to which a symbolic link leads, possibly in
    /// another directory. The link itself is not changed, because a changed link would become part
    /// of an image that a user commits from the container. Returns false, and mounts nothing, if
    /// the file is of another library or newer.
    fn mount_over_target(
        &mut self,
        link: &Path,
        library: &LibraryNames<'_>,
    ) -> Result<bool, ApplyError> {
        let mut path = link.to_owned();
        for _ in 0..=MAX_LINK_DEPTH {
            let Some((parent, name)) = self.root.open_parent(&path)? else {
                return Ok(false);
            };
            let Some(file) = parent.open(name)? else {
                return Ok(false);
            };
            match file.kind() {
                FileKind::Regular => {
                    let link_name = link.file_name().and_then(OsStr::to_str).unwrap_or_default();
                    if !is_same_library(link_name, name.as_os_str())
                        || self.newer_dir_identities.contains(&parent.identity()?)
                    {
                        return Ok(false);
                    }
                    self.mount_over_file(&parent, name, &file, library)?;
                    return Ok(true);
                }
                FileKind::Symlink => {
                    let Some(target) = read_link_target(&file) else {
                        return Ok(false);
                    };
                    path = path.with_file_name("").join(target);
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Reports whether a path of the image leads to an existing file that is not the library. Such
    /// a file hides the library from the loader. A broken link hides nothing, because the loader
    /// ignores it.
    fn leads_to_other_file(&self, path: &Path, library: &LibraryNames<'_>) -> bool {
        let file = self.root.resolve(path).ok().flatten();
        file.is_some_and(|file| file.identity() != library.identity)
    }
}

/// Follows a symbolic link of the image as long as it stays in its directory, and returns where it
/// leads. If the last file belongs to another library, returns `UnrelatedPath`, so that the caller
/// does not mount the injected library over this file.
fn follow_link(
    parent: &Parent,
    link: Handle,
    library_path: &Path,
    name: &str,
) -> Result<ImageLinkTarget, ApplyError> {
    let mut current_link = link;
    for _ in 0..MAX_LINK_DEPTH {
        let Some(target) = read_link_target(&current_link) else {
            break;
        };
        if target.is_absolute() && target.parent() == library_path.parent() {
            return Ok(ImageLinkTarget::InjectedLibrary);
        }
        let Ok(next_name) = FileName::new(target.as_os_str()) else {
            break;
        };
        match parent.open(next_name)? {
            Some(file) if file.kind() == FileKind::Regular => {
                return Ok(if is_same_library(name, next_name.as_os_str()) {
                    ImageLinkTarget::LibraryInSameDir(next_name.as_os_str().to_owned())
                } else {
                    ImageLinkTarget::UnrelatedPath
                });
            }
            Some(file) => current_link = file,
            None => break,
        }
    }
    Ok(ImageLinkTarget::UnrelatedPath)
}

/// Reports whether two file names belong to the same library: the text before `.so` is equal, as in
/// `libx.so` and `libx.so.1.2`.
pub fn is_same_library(name: &str, other_name: &OsStr) -> bool {
    let stem = |name: &str| name.find(".so").map(|end| name[..end].to_owned());
    let other_stem = other_name.to_str().and_then(stem);
    other_stem.is_some() && stem(name) == other_stem
}

/// Returns a one-line warning about the names that could not be added. It lists at most
/// [`MAX_LISTED_PATHS`] paths, and the reason for the first one. Returns `None` if all names were
/// added.
fn describe_name_problems(name_problems: &NameProblems) -> Option<String> {
    let (path, reason) = name_problems.first()?;
    let paths: Vec<String> = name_problems
        .iter()
        .take(MAX_LISTED_PATHS)
        .map(|(path, _)| path.display().to_string())
        .collect();
    let remaining_note = match name_problems.len() - paths.len() {
        0 => String::new(),
        remaining => format!(" and {remaining} more"),
    };
    Some(format!(
        "{}{remaining_note} do not lead to the host's libraries, which only programs need that open \
         them by such a path: {}: {reason}",
        paths.join(", "),
        path.display()
    ))
}
