//! Finds libraries of the container's image that are newer than those of the host.
//!
//! The image may be hostile. So only file names are read from its directories, at most 256 from
//! each. The directories are open, so that symbolic links cannot redirect the reads. The names are
//! written only to the configuration files of the container's own loader.

use std::path::{Path, PathBuf};

use device_class::class::SoName;
use device_class::discover::ImageLibraries;

use crate::container::{self, ContainerRoot, FileKind, FileName};

/// The maximum number of names that are read from a directory of the image. A directory with more
/// entries is skipped with a warning. Packages of drivers have about ten files in a directory.
const MAX_ENTRIES: usize = 256;

/// A directory of the image whose libraries are newer than the host's. The loader must search this
/// directory first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewerImageLibraries {
    pub(super) directory: PathBuf,
    /// The file names of the libraries, such as `libx.so.1`, each with its path.
    pub(super) libraries: Vec<(String, PathBuf)>,
}

/// Returns the directories of the image that have a newer version of a library than the host.
///
/// A directory that cannot be read is skipped with a warning, because the container can use the
/// host's libraries instead.
pub(super) fn find_newer_libraries(
    root: &ContainerRoot,
    image_libraries: &[ImageLibraries],
    warnings: &mut Vec<String>,
) -> Vec<NewerImageLibraries> {
    let mut newer_libraries = Vec::new();
    for candidate in image_libraries {
        let directory = candidate.directory.display();
        match list_library_names(root, &candidate.directory) {
            Ok(names) => match find_major_version(&names, &candidate.library) {
                Ok(Some(version)) if version > candidate.host_major_version => {
                    warnings.push(format!(
                        "the image's libraries in {directory} are used: version {version}, \
                         the host has {}",
                        candidate.host_major_version
                    ));
                    newer_libraries.push(NewerImageLibraries {
                        libraries: names
                            .into_iter()
                            .map(|name| (name.clone(), candidate.directory.join(name)))
                            .collect(),
                        directory: candidate.directory.clone(),
                    });
                }
                Ok(_) => {}
                Err(AmbiguousVersion) => warnings.push(format!(
                    "the image's libraries in {directory} are not used: it has several files \
                     {}.VERSION",
                    candidate.library
                )),
            },
            Err(error) => warnings.push(format!(
                "the image's libraries in {directory} are not used: {error}"
            )),
        }
    }
    newer_libraries
}

/// Returns the sorted file names of the libraries in a directory of the container. A symbolic link
/// counts only if it leads to a regular file of the container. Returns an empty list if the
/// container does not have the directory.
fn list_library_names(root: &ContainerRoot, path: &Path) -> container::Result<Vec<String>> {
    let Some(directory) = root.open_directory(path)? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for name in directory.list_entry_names(MAX_ENTRIES)? {
        let Some(name) = name.into_string().ok() else {
            continue;
        };
        if SoName::try_from(name.clone()).is_err() {
            continue;
        }
        let kind = match directory.open(FileName::new(&name)?)? {
            Some(entry) if entry.kind() == FileKind::Symlink => {
                root.resolve(&path.join(&name))?.map(|entry| entry.kind())
            }
            entry => entry.map(|entry| entry.kind()),
        };
        if kind == Some(FileKind::Regular) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The error for a directory with several versions of a library, such as `libx.so.535.54` and
/// `libx.so.550.1`. It is unknown which version the container's programs use.
#[derive(Debug, PartialEq, Eq)]
struct AmbiguousVersion;

/// Returns the major version of `library`, such as 535 if `names` contains `libx.so.535.54`.
/// Ignores names with a single number, such as `libx.so.1`, because this number is not the version
/// of a driver.
fn find_major_version(names: &[String], library: &str) -> Result<Option<u64>, AmbiguousVersion> {
    let mut versions = names.iter().filter_map(|name| {
        let version = name.strip_prefix(library)?.strip_prefix('.')?;
        let (major, minor_parts) = version.split_once('.')?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(major) || !minor_parts.split('.').all(is_number) {
            return None;
        }
        major.parse().ok()
    });
    match (versions.next(), versions.next()) {
        (version, None) => Ok(version),
        (_, Some(_)) => Err(AmbiguousVersion),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::container::Resolver;

    const DIRECTORY: &str = "/usr/local/chip/compat";

    /// Returns the directories that are found in an image with these files and links, and the
    /// warnings.
    fn find(files: &[&str], links: &[(&str, &str)]) -> (Vec<NewerImageLibraries>, Vec<String>) {
        let top = tempfile::tempdir().unwrap();
        let join = |path: &str| top.path().join(path.trim_start_matches('/'));
        for file in files {
            fs::create_dir_all(join(file).parent().unwrap()).unwrap();
            fs::write(join(file), "").unwrap();
        }
        for (link, target) in links {
            fs::create_dir_all(join(link).parent().unwrap()).unwrap();
            symlink(target, join(link)).unwrap();
        }
        let root = ContainerRoot::open(top.path(), Resolver::Walk).unwrap();
        let image_libraries = ImageLibraries {
            directory: DIRECTORY.into(),
            library: "libchip.so".into(),
            host_major_version: 550,
        };
        let mut warnings = Vec::new();
        (
            find_newer_libraries(&root, &[image_libraries], &mut warnings),
            warnings,
        )
    }

    fn list_library_names(result: &(Vec<NewerImageLibraries>, Vec<String>)) -> Vec<&str> {
        let libraries = result.0.iter().flat_map(|newer| &newer.libraries);
        libraries.map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn only_a_greater_major_version_is_used() {
        for (file, is_used) in [
            ("libchip.so.560.35.03", true),
            ("libchip.so.1000.1", true),
            ("libchip.so.550.90.07", false),
            ("libchip.so.99.1", false),
            ("libchip.so.560", false),
            ("libchip.so.560.x", false),
            ("libchip.so.560.1.", false),
            ("libchip.so.99999999999999999999999.1", false),
            ("libchip.so.+560.1", false),
            ("libchips.so.560.35", false),
        ] {
            let result = find(&[&format!("{DIRECTORY}/{file}")], &[]);
            assert_eq!(!result.0.is_empty(), is_used, "{file}");
            assert_eq!(result.1.len(), usize::from(is_used), "{:?}", result.1);
        }
    }

    #[test]
    fn the_directorys_links_lead_to_files_inside_the_container() {
        let real_dir = "/opt/chip-13/compat";
        let library = format!("{real_dir}/libchip.so.560.1.2");
        let links = [
            ("/usr/local/chip", "/opt/chip-13"),
            (&format!("{real_dir}/libchip.so.1"), "libchip.so.560.1.2"),
            (
                &format!("{real_dir}/libout.so.1"),
                "/../../../../../etc/passwd",
            ),
            (&format!("{real_dir}/libdangling.so.1"), "nothing.so"),
            (&format!("{real_dir}/libdirectory.so.1"), "/opt"),
        ];
        let result = find(&[&library, &format!("{real_dir}/README")], &links);
        assert_eq!(
            list_library_names(&result),
            ["libchip.so.1", "libchip.so.560.1.2"]
        );
        let library_path = &result.0[0].libraries[0].1;
        assert_eq!(library_path, &Path::new(DIRECTORY).join("libchip.so.1"));
    }

    #[test]
    fn an_image_without_the_directory_is_left_alone() {
        assert_eq!(find(&["/bin/sh"], &[]), (Vec::new(), Vec::new()));
        // A file at the path of the directory is ignored too.
        assert_eq!(find(&[DIRECTORY], &[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_cannot_be_determined_is_not_used_and_noted() {
        let file = |version: &str| format!("{DIRECTORY}/libchip.so.{version}");
        let loop_of_links = [("/usr/local/chip", "chip")];
        let file_names: Vec<String> = (0..=MAX_ENTRIES)
            .map(|number| format!("{DIRECTORY}/lib{number}.so.1"))
            .chain([file("560.1")])
            .collect();
        let file_names: Vec<&str> = file_names.iter().map(String::as_str).collect();
        for (result, note) in [
            (
                find(&[&file("560.1"), &file("570.1")], &[]),
                "several files libchip.so.VERSION",
            ),
            (find(&[], &loop_of_links), "symbolic links"),
            (find(&file_names, &[]), "more than 256 entries"),
        ] {
            assert_eq!(list_library_names(&result), [""; 0]);
            assert!(
                result.1.len() == 1 && result.1[0].contains(note),
                "{:?}",
                result.1
            );
        }
    }
}
