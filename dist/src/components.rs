//! Lists the components that are linked into the programs, with their licences.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::linked::{ProgramSet, ToolchainLibrary};

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

/// The components of a set of programs, and the dependencies between them.
struct Components {
    /// The packages, by name and version.
    packages: BTreeMap<(String, String), Package>,
    /// The libraries of the toolchain.
    toolchain: BTreeSet<ToolchainLibrary>,
    needs: BTreeMap<String, BTreeSet<String>>,
    /// The package URLs of the programs.
    programs: BTreeSet<String>,
}

impl Components {
    /// Finds what is linked into the programs of a set for `target`. What is linked is found by
    /// `cargo tree`, which knows the features of each build; licences are in `cargo metadata`.
    fn resolve(set: ProgramSet, target: &str) -> Result<Self> {
        let mut found = Self {
            packages: BTreeMap::new(),
            toolchain: BTreeSet::new(),
            needs: BTreeMap::new(),
            programs: BTreeSet::new(),
        };
        let mut linked = BTreeSet::new();
        for build in set.builds() {
            let crates = build.crates(target)?;
            let toolchain = build.toolchain(target)?;
            for (name, version) in &crates {
                if build.packages.contains(&name.as_str()) {
                    let url = package_url(name, version);
                    let needs = toolchain.iter().map(ToolchainLibrary::url);
                    found.needs.insert(url.clone(), needs.collect());
                    found.programs.insert(url);
                }
            }
            linked.extend(crates);
            found.toolchain.extend(toolchain);
        }
        let metadata = read_metadata(target)?;
        let nodes = metadata.resolve["nodes"].as_array().into_iter().flatten();
        let nodes: HashMap<_, _> = nodes.map(|n| (n["id"].as_str(), n)).collect();
        let is_linked = |p: &Package| linked.contains(&(p.name.clone(), p.version.clone()));
        let packages: Vec<Package> = metadata.packages.into_iter().filter(is_linked).collect();
        ensure!(
            packages.len() == linked.len(),
            "cargo tree and cargo metadata list different packages"
        );
        let urls: HashMap<_, _> = packages.iter().map(|p| (p.id.clone(), p.url())).collect();
        for package in packages {
            let node = nodes.get(&Some(&*package.id));
            let node = node.context("a package that is not resolved")?;
            // `kind` is null for a normal dependency (cargo-metadata(1)).
            let is_normal = |d: &&Value| {
                let mut kinds = d["dep_kinds"].as_array().into_iter().flatten();
                kinds.any(|kind| kind["kind"].is_null())
            };
            let needs = node["deps"].as_array().into_iter().flatten();
            let needs = needs.filter(is_normal).filter_map(|d| d["pkg"].as_str());
            let needs = needs.filter_map(|id| urls.get(id).cloned());
            found.needs.entry(package.url()).or_default().extend(needs);
            let key = (package.name.clone(), package.version.clone());
            found.packages.insert(key, package);
        }
        Ok(found)
    }
}

fn read_metadata(target: &str) -> Result<Metadata> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", target])
        .args(["--filter-platform", &target.replace("-gnu", "-musl")])
        .output()
        .context("cannot run cargo metadata")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {problem}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the package URL of a crate (purl, type cargo).
fn package_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

impl Package {
    fn url(&self) -> String {
        package_url(&self.name, &self.version)
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
    let mut found = Components::resolve(ProgramSet::Node, target)?;
    let cluster = Components::resolve(ProgramSet::Cluster, target)?;
    found.packages.extend(cluster.packages);
    found.toolchain.extend(cluster.toolchain);
    for library in &found.toolchain {
        let ToolchainLibrary {
            name,
            version,
            license,
        } = library;
        writeln!(list, "{name} {version}: {license}, of the toolchain")?;
    }
    for package in found.packages.values().filter(|p| p.source.is_some()) {
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

/// Writes the list of components (SBOM) of a set of programs in the format CycloneDX 1.5. The
/// optional serial number is left out, so that the same sources give the same bytes.
pub(crate) fn write_sbom(file: &Path, set: ProgramSet, target: &str, created: &str) -> Result<()> {
    let found = Components::resolve(set, target)?;
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
    components.extend(found.toolchain.iter().map(|library| {
        json!({
            "type": "library",
            "bom-ref": library.url(),
            "name": library.name,
            "version": library.version,
            "purl": library.url(),
            "licenses": [{"expression": library.license}],
        })
    }));
    let name = match set {
        ProgramSet::Node => "boathook",
        ProgramSet::Cluster => "boathook-cluster",
    };
    let needs = found.needs.iter();
    let mut needs: Vec<Value> = needs
        .map(|(one, all)| json!({"ref": one, "dependsOn": all}))
        .collect();
    needs.push(json!({"ref": name, "dependsOn": found.programs}));
    let supplier =
        json!({"name": "The Boathook maintainers", "url": [env!("CARGO_PKG_REPOSITORY")]});
    let sbom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "tools": {"components": [{
                "type": "application",
                "name": "boathook-dist",
                "version": env!("CARGO_PKG_VERSION"),
            }]},
            "supplier": supplier,
            "component": {
                "type": "application",
                "bom-ref": name,
                "name": name,
                "version": env!("CARGO_PKG_VERSION"),
                "supplier": supplier,
                "licenses": [{"expression": env!("CARGO_PKG_LICENSE")}],
                "properties": [{"name": "cargo:target", "value": target}],
            },
        },
        "components": components,
        "dependencies": needs,
    });
    let text = serde_json::to_string_pretty(&sbom)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
