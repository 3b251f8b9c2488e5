//! Lists the components that are linked into the programs, with their licences.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The packages whose programs are in a release.
const PROGRAMS: [&str; 5] = [
    "boathook-hook",
    "boathook-plugin",
    "boathook-initcontainer",
    "boathook-cluster",
    "boathook-dra",
];

/// The part of `cargo metadata` that is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    /// The graph of dependencies between the packages.
    resolve: Value,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// The registry. `None` means that the package is in this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The components, and the dependencies between them.
struct Components {
    /// The packages, by name and version.
    packages: BTreeMap<(String, String), Package>,
    needs: BTreeMap<String, BTreeSet<String>>,
}

impl Components {
    /// Lists the packages that cargo links into the programs for `target`. Procedural macros and
    /// their dependencies are listed too, because cargo does not distinguish them from linked
    /// packages.
    fn resolve(target: &str) -> Result<Self> {
        let output = Command::new("cargo")
            .args(["metadata", "--format-version=1", "--locked"])
            .args(["--filter-platform", target])
            .output()
            .context("cannot run cargo metadata")?;
        let problem = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata: {problem}");
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        let nodes = metadata.resolve["nodes"].as_array().into_iter().flatten();
        let nodes: HashMap<_, _> = nodes.map(|n| (n["id"].as_str(), n)).collect();
        let mut packages: HashMap<_, _> = metadata
            .packages
            .into_iter()
            .map(|p| (p.id.clone(), p))
            .collect();
        let is_program = |p: &&Package| PROGRAMS.contains(&p.name.as_str());
        let mut pending: Vec<_> = packages
            .values()
            .filter(is_program)
            .map(|p| p.id.clone())
            .collect();
        ensure!(
            pending.len() == PROGRAMS.len(),
            "cargo lists no {PROGRAMS:?}"
        );
        let mut found = Self {
            packages: BTreeMap::new(),
            needs: BTreeMap::new(),
        };
        let urls: HashMap<_, _> = packages
            .iter()
            .map(|(id, p)| (id.clone(), p.url()))
            .collect();
        while let Some(id) = pending.pop() {
            let Some(package) = packages.remove(&id) else {
                continue;
            };
            let node = nodes.get(&Some(&*id));
            let node = node.context("a package that is not resolved")?;
            // `kind` is null for a normal dependency (cargo-metadata(1)).
            let is_linked = |d: &&Value| {
                let mut kinds = d["dep_kinds"].as_array().into_iter().flatten();
                kinds.any(|kind| kind["kind"].is_null())
            };
            let needs = node["deps"].as_array().into_iter().flatten();
            let needs = needs.filter(is_linked).filter_map(|d| d["pkg"].as_str());
            let needs: Vec<String> = needs.map(str::to_owned).collect();
            let names = needs.iter().filter_map(|id| urls.get(id).cloned());
            found.needs.insert(package.url(), names.collect());
            pending.extend(needs);
            let key = (package.name.clone(), package.version.clone());
            found.packages.insert(key, package);
        }
        Ok(found)
    }
}

impl Package {
    /// Returns the package URL of the component (purl, type cargo).
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    /// Returns the licence as an SPDX expression. Old packages write a slash for `OR`.
    fn license(&self) -> Result<String> {
        let license = self.license.as_ref();
        let license = license.with_context(|| format!("{} states no licence", self.name))?;
        Ok(license.replace('/', " OR "))
    }

    /// Reads the licences, copyright lines and notices in the package's directory.
    fn texts(&self) -> Result<Vec<String>> {
        let dir = self
            .manifest_path
            .parent()
            .context("a package in no directory")?;
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.to_uppercase();
            let begins = [
                "LICENSE",
                "LICENCE",
                "COPYING",
                "COPYRIGHT",
                "NOTICE",
                "UNLICENSE",
            ];
            if path.is_file() && begins.iter().any(|begin| name.starts_with(begin)) {
                files.push(path);
            }
        }
        files.sort();
        let read =
            |path: PathBuf| fs::read_to_string(&path).with_context(|| path.display().to_string());
        files.into_iter().map(read).collect()
    }
}

/// Writes a list of the components with their licences, followed by the texts of the licences.
/// A text that several components share is written once.
pub(crate) fn write_licenses(file: &Path, target: &str) -> Result<()> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in Components::resolve(target)?
        .packages
        .values()
        .filter(|p| p.source.is_some())
    {
        let name = format!("{} {}", package.name, package.version);
        let license = package.license()?;
        let found = package.texts()?;
        let note = if found.is_empty() {
            ", whose package holds no text of it"
        } else {
            ""
        };
        writeln!(list, "{name}: {license}{note}")?;
        for text in found {
            texts
                .entry(text.trim().to_owned())
                .or_default()
                .push(name.clone());
        }
    }
    if texts.is_empty() {
        bail!("no licence was found: the sources of the dependencies are missing");
    }
    let mut all = format!(
        "The programs are under the Apache License 2.0 (LICENSE). They are linked with the\n\
         following components, under these licences. The texts follow.\n\n{list}"
    );
    for (text, names) in texts {
        write!(
            all,
            "\n{}\n{}:\n\n{text}\n",
            "-".repeat(80),
            names.join(", ")
        )?;
    }
    fs::write(file, all).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes the list of components (SBOM) in the format CycloneDX 1.5. The optional serial number
/// and time are left out, so that the same sources give the same bytes.
pub(crate) fn write_sbom(file: &Path, target: &str) -> Result<()> {
    let found = Components::resolve(target)?;
    let mut components = Vec::new();
    for package in found.packages.values() {
        let mut component = json!({
            "type": "library",
            "bom-ref": package.url(),
            "name": package.name,
            "version": package.version,
            "purl": package.url(),
            "licenses": [{"expression": package.license()?}],
        });
        if let Some(repository) = &package.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        components.push(component);
    }
    let needs = found.needs.iter();
    let needs: Vec<Value> = needs
        .map(|(one, all)| json!({"ref": one, "dependsOn": all}))
        .collect();
    let sbom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": "boathook",
            "name": "boathook",
            "version": env!("CARGO_PKG_VERSION"),
            "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
            "properties": [{"name": "cargo:target", "value": target}],
        }},
        "components": components,
        "dependencies": needs,
    });
    let text = serde_json::to_string_pretty(&sbom)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
