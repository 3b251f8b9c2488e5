//! The names of injected libraries in the directories of the image itself.
//!
//! Some programs find a library neither by the loader's cache nor by its configuration: they open
//! a path, search a directory, have a loader of their own, or are linked with `-l`. Others find a
//! leftover of the image before the cache, because `LD_LIBRARY_PATH` names its directory. So the
//! image's library directory gets links to the libraries, and files that have one of their names
//! are covered.
//!
//! The image may be hostile. Each directory is resolved once to a handle, and everything below is
//! done with that handle and single names. Nothing here is necessary for the devices to work, so
//! whatever cannot be done is only noted.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use device_class::host::Programs;

use super::ApplyError;
use crate::container::{
    self, ContainerRoot, FileKind, Handle, Identity, Name, Parent, read_link_target,
};
use crate::mount::{self, Mounter};

/// The library directories of images, by the layout of their distribution: Debian and Ubuntu, then
/// Fedora, SUSE and Arch, then Alpine and images without a loader. The first one that exists is
/// used.
pub(super) const IMAGE_DIRECTORIES: [&str; 3] = if cfg!(target_arch = "aarch64") {
    ["/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
} else {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
};

/// The same for libraries of 32-bit programs. Fedora has them in `/usr/lib`.
const IMAGE_DIRECTORIES_32BIT: [&str; 2] = ["/usr/lib/i386-linux-gnu", "/usr/lib"];

/// The largest number of links inside one directory that are followed to a file. Packages have at
/// most two: `libx.so`, `libx.so.1` and `libx.so.1.2`.
pub(crate) const MAX_LINKS: usize = 4;

/// The largest number of names that a note lists.
const SHOWN: usize = 3;

/// An injected library.
pub(super) struct NamedLibrary<'p> {
    /// Its path in the container.
    pub(super) path: &'p Path,
    pub(super) identity: Identity,
    /// The names by which programs open it.
    pub(super) names: &'p BTreeSet<String>,
    /// The subset of `names` for which a link is created in the image's library directory.
    pub(super) image_links: &'p BTreeSet<String>,
}

/// The directories of an image in which names are placed.
pub(super) struct ImageDirectories<'p> {
    /// The directories of `LD_LIBRARY_PATH`.
    pub(super) library_path: &'p [PathBuf],
    /// The directory of the injected libraries for 32-bit programs.
    pub(super) directory_32bit: Option<&'p Path>,
    /// Directories with libraries that are used instead of the host's.
    pub(super) newer: Vec<PathBuf>,
}

/// One directory of the image, resolved once.
struct ImageDirectory {
    parent: Parent,
    identity: Identity,
    path: PathBuf,
    gets_links: bool,
    /// Whether the loader searches the directory before its configuration.
    is_searched_first: bool,
}

/// A file to which a link of the image leads.
enum LinkTarget {
    /// The injected library.
    Injected,
    /// A file in the same directory, by its name.
    Beside(OsString),
    /// Another path, or nothing.
    Elsewhere,
}

struct Placement<'a, 'r> {
    root: &'r ContainerRoot,
    mounter: &'a mut Mounter,
    problems: Problems,
}

/// The paths of names that could not be placed, and of directories that could not be opened, with
/// the reasons.
type Problems = Vec<(PathBuf, String)>;

/// Places the names of all libraries. Notes those that could not be placed.
pub(super) fn place_names(
    root: &ContainerRoot,
    mounter: &mut Mounter,
    libraries: &[NamedLibrary<'_>],
    directories: &ImageDirectories<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let is_32bit = |library: &&NamedLibrary<'_>| {
        let directory = directories.directory_32bit;
        directory.is_some_and(|directory| library.path.starts_with(directory))
    };
    let mut problems = Problems::new();
    let directory_32bit = if libraries.iter().any(|library| is_32bit(&library)) {
        first_directory(root, &IMAGE_DIRECTORIES_32BIT, &mut problems)
    } else {
        None
    };
    let native = native_directories(root, directories, directory_32bit.as_ref(), &mut problems);
    let mut placement = Placement {
        root,
        mounter,
        problems,
    };
    for directory in &native {
        for library in libraries.iter().filter(|library| !is_32bit(library)) {
            placement.place_library(directory, library)?;
        }
    }
    // An image with one directory for both has no libraries for 32-bit programs.
    let is_native =
        |directory: &ImageDirectory| native.iter().any(|it| it.identity == directory.identity);
    if let Some(directory) = directory_32bit.filter(|directory| !is_native(directory)) {
        for library in libraries.iter().filter(is_32bit) {
            placement.place_library(&directory, library)?;
        }
    }
    warnings.extend(describe_problems(&placement.problems));
    Ok(())
}

/// Returns the image's library directory, and those of `LD_LIBRARY_PATH`, each once. Directories
/// with newer libraries, and the one for 32-bit programs, are left out.
fn native_directories(
    root: &ContainerRoot,
    directories: &ImageDirectories<'_>,
    directory_32bit: Option<&ImageDirectory>,
    problems: &mut Problems,
) -> Vec<ImageDirectory> {
    let mut native = Vec::from_iter(first_directory(root, &IMAGE_DIRECTORIES, problems));
    if let Some(first) = native.first_mut() {
        first.gets_links = true;
    }
    let mut left_out = Vec::new();
    for path in &directories.newer {
        left_out.extend(open_directory(root, path, problems).map(|it| it.identity));
    }
    native.retain(|directory| !left_out.contains(&directory.identity));
    left_out.extend(directory_32bit.map(|directory| directory.identity));
    for path in directories.library_path {
        let Some(directory) = open_directory(root, path, problems) else {
            continue;
        };
        let mut known = native.iter_mut();
        match known.find(|known| known.identity == directory.identity) {
            Some(known) => known.is_searched_first = true,
            None if left_out.contains(&directory.identity) => {}
            None => native.push(ImageDirectory {
                is_searched_first: true,
                ..directory
            }),
        }
    }
    native
}

fn first_directory(
    root: &ContainerRoot,
    paths: &[&str],
    problems: &mut Problems,
) -> Option<ImageDirectory> {
    let mut paths = paths.iter().map(Path::new);
    paths.find_map(|path| open_directory(root, path, problems))
}

/// Opens a directory of the image. A path that leads nowhere, such as a loop of links, is no
/// directory. One that cannot be opened, such as a directory in a volume of FUSE that root may not
/// use, is a problem that is noted.
fn open_directory(
    root: &ContainerRoot,
    path: &Path,
    problems: &mut Problems,
) -> Option<ImageDirectory> {
    let opened = root.existing_directory_as_parent(path).and_then(|parent| {
        let identity = parent.as_ref().map(Parent::identity).transpose()?;
        Ok(parent.zip(identity))
    });
    match opened {
        Ok(opened) => opened.map(|(parent, identity)| ImageDirectory {
            parent,
            identity,
            path: path.to_owned(),
            gets_links: false,
            is_searched_first: false,
        }),
        Err(error) => {
            if !error.means_no_directory() {
                problems.push((path.to_owned(), crate::log::chain(&error)));
            }
            None
        }
    }
}

impl Placement<'_, '_> {
    fn place_library(
        &mut self,
        directory: &ImageDirectory,
        library: &NamedLibrary<'_>,
    ) -> Result<(), ApplyError> {
        for name in library.names {
            let gets_link = directory.gets_links && library.image_links.contains(name);
            match self.place_name(directory, library, name, gets_link) {
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
                    let reason = crate::log::chain(&error);
                    self.problems.push((directory.path.join(name), reason));
                }
                // A mount whose restrictions are uncertain must not stay in a container.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a name in a directory of the image lead to the library, if the image has the name
    /// or `gets_link` is set.
    fn place_name(
        &mut self,
        directory: &ImageDirectory,
        library: &NamedLibrary<'_>,
        name: &str,
        gets_link: bool,
    ) -> Result<(), ApplyError> {
        let parent = &directory.parent;
        let entry = Name::new(name)?;
        let place = library.path.with_file_name(name);
        let mut linked = Ok(());
        if gets_link {
            linked = match parent.symlink(entry, &place) {
                Ok(()) => return Ok(()),
                Err(container::Error::Occupied { .. }) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let Some(found) = parent.open(entry)? else {
            return Ok(linked?);
        };
        match found.kind() {
            FileKind::Regular => self.cover(parent, entry, &found, library),
            FileKind::Symlink => match follow_link(parent, found, &place, name)? {
                LinkTarget::Injected => Ok(()),
                LinkTarget::Beside(file) => {
                    let file = Name::new(&file)?;
                    match parent.open(file)? {
                        Some(found) => self.cover(parent, file, &found, library),
                        None => Ok(()),
                    }
                }
                LinkTarget::Elsewhere => {
                    let is_hiding = directory.is_searched_first
                        && self.leads_to_other_file(&directory.path.join(name), library);
                    if gets_link || is_hiding {
                        parent.redirect_link(entry, &place)?;
                    }
                    Ok(())
                }
            },
            found => Err(container::Error::Occupied {
                path: directory.path.join(name),
                found,
            }
            .into()),
        }
    }

    /// Mounts the library over a file of the image. Nothing is done if it is there already,
    /// because a hook may run twice.
    fn cover(
        &mut self,
        parent: &Parent,
        name: Name<'_>,
        found: &Handle,
        library: &NamedLibrary<'_>,
    ) -> Result<(), ApplyError> {
        if found.identity() == library.identity {
            return Ok(());
        }
        let source = self.root.resolve(library.path)?;
        let source = source.filter(|source| source.identity() == library.identity);
        let target = parent.existing_mount_point(name, FileKind::Regular)?;
        if let (Some(source), Some(target)) = (source, target) {
            self.mounter.attach_copy(&source, library.path, &target)?;
        }
        Ok(())
    }

    /// Returns whether a path of the image leads to a file that is not the library. The loader
    /// ignores a link that leads to nothing.
    fn leads_to_other_file(&self, path: &Path, library: &NamedLibrary<'_>) -> bool {
        let found = self.root.resolve(path).ok().flatten();
        found.is_some_and(|found| found.identity() != library.identity)
    }
}

/// Follows a link of the image inside its directory. Only a file whose name has the same beginning
/// as the link's counts: it is the same library in another version, which no other program uses
/// under another name.
fn follow_link(
    parent: &Parent,
    link: Handle,
    place: &Path,
    name: &str,
) -> Result<LinkTarget, ApplyError> {
    let mut found = link;
    for _ in 0..MAX_LINKS {
        let Some(text) = read_link_target(&found) else {
            break;
        };
        if text.is_absolute() && text.parent() == place.parent() {
            return Ok(LinkTarget::Injected);
        }
        let Ok(next) = Name::new(text.as_os_str()) else {
            break;
        };
        match parent.open(next)? {
            Some(file) if file.kind() == FileKind::Regular => {
                return Ok(if is_same_library(name, next.as_os_str()) {
                    LinkTarget::Beside(next.as_os_str().to_owned())
                } else {
                    LinkTarget::Elsewhere
                });
            }
            Some(file) => found = file,
            None => break,
        }
    }
    Ok(LinkTarget::Elsewhere)
}

/// Returns whether two names of files are equal up to `.so`.
pub(crate) fn is_same_library(name: &str, other: &OsStr) -> bool {
    let stem = |name: &str| name.find(".so").map(|end| name[..end].to_owned());
    let other = other.to_str().and_then(stem);
    other.is_some() && stem(name) == other
}

/// Returns the image's library directory for these programs, by a function that returns whether a
/// directory exists. The last one is created with the directory of the injected libraries.
pub(crate) fn find_image_directory(
    programs: Programs,
    exists: impl Fn(&Path) -> bool,
) -> &'static Path {
    let directories: &[&str] = match programs {
        Programs::Native => &IMAGE_DIRECTORIES,
        Programs::Bits32 => &IMAGE_DIRECTORIES_32BIT,
    };
    let mut directories = directories.iter().map(Path::new);
    let existing = directories.clone().find(|path| exists(path));
    existing
        .or(directories.next_back())
        .unwrap_or(Path::new("/"))
}

/// Describes the names that could not be placed, in one line.
fn describe_problems(problems: &Problems) -> Option<String> {
    let (path, reason) = problems.first()?;
    let names: Vec<String> = problems
        .iter()
        .take(SHOWN)
        .map(|(path, _)| path.display().to_string())
        .collect();
    let more = match problems.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{}{more} do not lead to the host's libraries, which only programs need that open them by \
         such a path: {}: {reason}",
        names.join(", "),
        path.display()
    ))
}
