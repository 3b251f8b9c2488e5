//! Copies the documents of the source tree into a release: README and others at the top, and
//! `docs`. Changes the links in the documents so that they are valid outside of the source tree.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// The directory of a release that contains the documents.
const DOCUMENTS_DIR: &str = "share/doc/boathook";

/// The directory that contains the pictures. It is in `docs` of the source tree, and beside the
/// documents of a release.
const PICTURES_DIR: &str = "pictures";

/// The documents at the top of the source tree that a release contains.
const TOP_DOCUMENTS: [&str; 3] = ["README.md", "CHANGELOG.md", "SECURITY.md"];

/// Writes the documents of the source tree `source_dir` to the directory `release_dir`. README.md
/// is also written to the top of the release.
pub(crate) fn write_documents(source_dir: &Path, release_dir: &Path) -> Result<()> {
    let documents_dir = release_dir.join(DOCUMENTS_DIR);
    fs::create_dir_all(&documents_dir)
        .with_context(|| format!("cannot make {}", documents_dir.display()))?;
    let mut document_names: Vec<PathBuf> = TOP_DOCUMENTS.map(PathBuf::from).into();
    let docs_dir = source_dir.join("docs");
    let entries =
        fs::read_dir(&docs_dir).with_context(|| format!("cannot read {}", docs_dir.display()))?;
    for entry in entries {
        document_names.push(Path::new("docs").join(entry?.file_name()));
    }
    document_names.retain(|name| name.extension().is_some_and(|extension| extension == "md"));
    copy_pictures(
        &docs_dir.join(PICTURES_DIR),
        &documents_dir.join(PICTURES_DIR),
    )?;
    for name in document_names {
        let path = source_dir.join(&name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let document_dir = name.parent().unwrap_or(Path::new(""));
        let file_name = name.file_name().unwrap_or_default();
        let mut copy_paths = vec![(documents_dir.join(file_name), "")];
        if name == Path::new("README.md") {
            copy_paths.push((release_dir.join(file_name), DOCUMENTS_DIR));
        }
        for (copy_path, documents_prefix) in copy_paths {
            let text = replace_links(&text, |link| {
                find_released_target(source_dir, document_dir, link, documents_prefix)
            });
            fs::write(&copy_path, text)
                .with_context(|| format!("cannot write {}", copy_path.display()))?;
        }
    }
    Ok(())
}

/// Copies the pictures that the documents show. Does not copy the sources from which the pictures
/// are drawn.
fn copy_pictures(source_dir: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    let entries = fs::read_dir(source_dir)
        .with_context(|| format!("cannot read {}", source_dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            let copy_path = target.join(path.file_name().unwrap_or_default());
            fs::copy(&path, &copy_path)
                .with_context(|| format!("cannot write {}", copy_path.display()))?;
        }
    }
    Ok(())
}

/// Returns a Markdown text with changed links. `find_target` returns the new target of a link, or
/// `None` if the link is to stay as it is.
pub(crate) fn replace_links(text: &str, find_target: impl Fn(&str) -> Option<String>) -> String {
    let mut link_parts = text.split("](");
    let mut changed_text = link_parts.next().unwrap_or_default().to_owned();
    for link_part in link_parts {
        changed_text.push_str("](");
        match link_part.split_once(')') {
            Some((target, rest)) => {
                changed_text.push_str(find_target(target).as_deref().unwrap_or(target));
                changed_text.push(')');
                changed_text.push_str(rest);
            }
            None => changed_text.push_str(link_part),
        }
    }
    changed_text
}

/// Returns the target that a link has in a release: another document of the release, or the URL of
/// a file in the source repository. `document_dir` is the directory of the document with the link,
/// and `documents_prefix` is the path from that document to the documents of the release. Returns
/// `None` if the link need not be changed.
fn find_released_target(
    source_dir: &Path,
    document_dir: &Path,
    link: &str,
    documents_prefix: &str,
) -> Option<String> {
    let (path, fragment) = match link.find('#') {
        Some(start) => link.split_at(start),
        None => (link, ""),
    };
    let path = normalize_path(&document_dir.join(path));
    if path == document_dir || !source_dir.join(&path).exists() {
        return None;
    }
    Some(match get_document_path(&path) {
        Some(document) => {
            let document = Path::new(documents_prefix).join(document);
            format!("{}{fragment}", document.display())
        }
        None => format!(
            "{}/blob/v{}/{}{fragment}",
            env!("CARGO_PKG_REPOSITORY"),
            env!("CARGO_PKG_VERSION"),
            path.display()
        ),
    })
}

/// Returns the path that a file of the source tree has among the documents of a release. Returns
/// `None` if a release does not contain the file as a document.
fn get_document_path(path: &Path) -> Option<&Path> {
    let is_top_document = TOP_DOCUMENTS.iter().any(|name| path == Path::new(name));
    if path.starts_with("deploy/examples") {
        path.strip_prefix("deploy").ok()
    } else {
        path.strip_prefix("docs")
            .ok()
            .or_else(|| is_top_document.then_some(path))
    }
}

/// Resolves `..` in a path without access to the file system.
fn normalize_path(path: &Path) -> PathBuf {
    let mut normalized_path = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normalized_path.pop();
            }
            other => normalized_path.push(other),
        }
    }
    normalized_path
}
