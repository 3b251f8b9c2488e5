//! The documents of a release: README and those of `docs`, with links that lead somewhere
//! outside of the source tree, too.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Where a release has them.
const DIRECTORY: &str = "share/doc/boathook";

/// Files of the source tree, beside those of `docs`.
const TOP: [&str; 3] = ["README.md", "CHANGELOG.md", "SECURITY.md"];

/// Writes the documents of the source tree `source` to a release at `tree`: README also at
/// its top.
pub(crate) fn write(source: &Path, tree: &Path) -> Result<()> {
    let directory = tree.join(DIRECTORY);
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let mut names: Vec<PathBuf> = TOP.map(PathBuf::from).into();
    let docs = source.join("docs");
    let entries = fs::read_dir(&docs).with_context(|| format!("cannot read {}", docs.display()))?;
    for entry in entries {
        names.push(Path::new("docs").join(entry?.file_name()));
    }
    names.retain(|name| name.extension().is_some_and(|it| it == "md"));
    for name in names {
        let path = source.join(&name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let from = name.parent().unwrap_or(Path::new(""));
        let file = name.file_name().unwrap_or_default();
        let mut copies = vec![(directory.join(file), "")];
        if name == Path::new("README.md") {
            copies.push((tree.join(file), DIRECTORY));
        }
        for (copy, to_documents) in copies {
            let text = with_links(&text, |link| released(source, from, link, to_documents));
            fs::write(&copy, text).with_context(|| format!("cannot write {}", copy.display()))?;
        }
    }
    Ok(())
}

/// A Markdown text with the targets of its links replaced where `replace` has another one.
fn with_links(text: &str, replace: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("](");
        match part.split_once(')') {
            Some((target, rest)) => {
                out.push_str(replace(target).as_deref().unwrap_or(target));
                out.push(')');
                out.push_str(rest);
            }
            None => out.push_str(part),
        }
    }
    out
}

/// Where the link of a file in the directory `from` leads in a release: to a document of it,
/// or to the source tree on the network. `None`: it needs no change.
fn released(source: &Path, from: &Path, link: &str, to_documents: &str) -> Option<String> {
    let (path, fragment) = match link.find('#') {
        Some(at) => link.split_at(at),
        None => (link, ""),
    };
    let path = normal(&from.join(path));
    if path == from || !source.join(&path).exists() {
        return None;
    }
    Some(match document(&path) {
        Some(document) => {
            let document = Path::new(to_documents).join(document);
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

/// The name among the documents of a release of a file of the source tree.
fn document(path: &Path) -> Option<&Path> {
    let is_top = TOP.iter().any(|top| path == Path::new(top));
    match path.starts_with("deploy/examples") {
        true => path.strip_prefix("deploy").ok(),
        false => path
            .strip_prefix("docs")
            .ok()
            .or_else(|| is_top.then_some(path)),
    }
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}
