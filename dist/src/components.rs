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

/// The fields of `cargo metadata` that this program reads.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    /// The graph of the dependencies between packages.
    resolve: Value,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// The registry of the package. `None` means that the package is in this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// The components of a set of programs, and the dependencies between them.
struct Components {
    /// The packages of the programs. The key is the name and the version.
    packages: BTreeMap<(String, String), Package>,
    /// The libraries of the toolchain, such as the C library.
    toolchain_libraries: BTreeSet<ToolchainLibrary>,
    /// The dependencies of each component. The key is the package URL of the component, and the
    /// value contains the package URLs of its dependencies.
    dependencies: BTreeMap<String, BTreeSet<String>>,
    /// The package URLs of the programs themselves.
    programs: BTreeSet<String>,
}

impl Components {
    /// Finds the components of the programs in a set: the packages and the libraries of the
    /// toolchain that are linked into them for `target`. `cargo tree` lists the packages, because
    /// it knows the features of each build. `cargo metadata` contains their licences.
    fn resolve(program_set: ProgramSet, target: &str) -> Result<Self> {
        let mut components = Self {
            packages: BTreeMap::new(),
            toolchain_libraries: BTreeSet::new(),
            dependencies: BTreeMap::new(),
            programs: BTreeSet::new(),
        };
        let mut linked_crates = BTreeSet::new();
        for build in program_set.list_builds() {
            let crates = build.list_crates(target)?;
            let toolchain_libraries = build.list_toolchain_libraries(target)?;
            for (name, version) in &crates {
                if build.packages.contains(&name.as_str()) {
                    let url = format_package_url(name, version);
                    let dependencies = toolchain_libraries
                        .iter()
                        .map(ToolchainLibrary::url)
                        .collect();
                    components.dependencies.insert(url.clone(), dependencies);
                    components.programs.insert(url);
                }
            }
            linked_crates.extend(crates);
            components.toolchain_libraries.extend(toolchain_libraries);
        }
        let metadata = read_metadata(&[target.to_owned(), target.replace("-gnu", "-musl")])?;
        let nodes = metadata.resolve["nodes"].as_array().into_iter().flatten();
        let nodes: HashMap<_, _> = nodes.map(|node| (node["id"].as_str(), node)).collect();
        if program_set == ProgramSet::Sources {
            let packages = metadata.packages.iter();
            let packages = packages.filter(|package| nodes.contains_key(&Some(&*package.id)));
            linked_crates
                .extend(packages.map(|package| (package.name.clone(), package.version.clone())));
        }
        let is_linked = |package: &Package| {
            linked_crates.contains(&(package.name.clone(), package.version.clone()))
        };
        let packages: Vec<Package> = metadata.packages.into_iter().filter(is_linked).collect();
        ensure!(
            packages.len() == linked_crates.len(),
            "cargo tree and cargo metadata list different packages"
        );
        let urls: HashMap<_, _> = packages
            .iter()
            .map(|package| (package.id.clone(), package.url()))
            .collect();
        for package in packages {
            let node = nodes.get(&Some(&*package.id));
            let node = node.context("a package that is not resolved")?;
            // `kind` is null for a normal dependency (cargo-metadata(1)).
            let is_normal = |dependency: &&Value| {
                let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
                kinds.any(|kind| kind["kind"].is_null())
            };
            let dependencies = node["deps"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(is_normal)
                .filter_map(|dependency| urls.get(dependency["pkg"].as_str()?).cloned());
            components
                .dependencies
                .entry(package.url())
                .or_default()
                .extend(dependencies);
            let key = (package.name.clone(), package.version.clone());
            components.packages.insert(key, package);
        }
        Ok(components)
    }
}

/// Returns all packages that a build of this workspace or of its tests can compile for `targets`.
/// Each package is returned as the directory name that `cargo vendor --versioned-dirs` gives it,
/// such as `serde-1.0.228`.
pub(crate) fn list_compiled_packages(targets: &[String]) -> Result<BTreeSet<String>> {
    let metadata = read_metadata(targets)?;
    let nodes = metadata.resolve["nodes"].as_array().into_iter().flatten();
    let resolved_ids: BTreeSet<&str> = nodes.filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata.packages.iter();
    let packages = packages.filter(|package| resolved_ids.contains(&*package.id));
    Ok(packages
        .map(|package| format!("{}-{}", package.name, package.version))
        .collect())
}

fn read_metadata(targets: &[String]) -> Result<Metadata> {
    let platforms = targets
        .iter()
        .map(|target| format!("--filter-platform={target}"));
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--locked"])
        .args(platforms)
        .output()
        .context("cannot run cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {stderr}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the package URL (purl) of a crate, such as `pkg:cargo/serde@1.0.228`.
fn format_package_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

impl Package {
    fn url(&self) -> String {
        format_package_url(&self.name, &self.version)
    }

    /// Returns the licence as an SPDX expression. In old packages a slash stands for `OR`.
    fn spdx_license(&self) -> Result<String> {
        let license = self.license.as_ref();
        let license = license.with_context(|| format!("{} states no licence", self.name))?;
        Ok(license.replace('/', " OR "))
    }

    /// Reads the files in the package's directory that contain licences, copyright lines or
    /// notices.
    fn read_license_texts(&self) -> Result<Vec<String>> {
        let dir = self
            .manifest_path
            .parent()
            .context("a package in no directory")?;
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.to_uppercase();
            let prefixes = [
                "LICENSE",
                "LICENCE",
                "COPYING",
                "COPYRIGHT",
                "NOTICE",
                "UNLICENSE",
            ];
            if path.is_file() && prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                files.push(path);
            }
        }
        files.sort();
        let read_text =
            |path: PathBuf| fs::read_to_string(&path).with_context(|| path.display().to_string());
        files.into_iter().map(read_text).collect()
    }
}

/// Writes a list of all components with their licences, followed by the texts of the licences. If
/// several components have the same text, it is written once.
pub(crate) fn write_licenses(file: &Path, target: &str) -> Result<()> {
    let mut license_list = String::new();
    let mut names_by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut components = Components::resolve(ProgramSet::Node, target)?;
    let cluster_components = Components::resolve(ProgramSet::Cluster, target)?;
    components.packages.extend(cluster_components.packages);
    components
        .toolchain_libraries
        .extend(cluster_components.toolchain_libraries);
    for library in &components.toolchain_libraries {
        let ToolchainLibrary {
            name,
            version,
            license,
        } = library;
        writeln!(
            license_list,
            "{name} {version}: {license}, of the toolchain"
        )?;
    }
    for package in components
        .packages
        .values()
        .filter(|package| package.source.is_some())
    {
        let name = format!("{} {}", package.name, package.version);
        let license = package.spdx_license()?;
        let license_texts = package.read_license_texts()?;
        let note = if license_texts.is_empty() {
            ", whose package holds no text of it"
        } else {
            ""
        };
        writeln!(license_list, "{name}: {license}{note}")?;
        for text in license_texts {
            names_by_text
                .entry(text.trim().to_owned())
                .or_default()
                .push(name.clone());
        }
    }
    if names_by_text.is_empty() {
        bail!("no licence was found: the sources of the dependencies are missing");
    }
    let mut document = format!(
        "The programs are under the Apache License 2.0 (LICENSE). They are linked with the\n\
         following components, under these licences. The texts follow.\n\n{license_list}"
    );
    for (text, names) in names_by_text {
        write!(
            document,
            "\n{}\n{}:\n\n{text}\n",
            "-".repeat(80),
            names.join(", ")
        )?;
    }
    fs::write(file, document).with_context(|| format!("cannot write {}", file.display()))
}

/// Writes the list of components (SBOM) of a set of programs in the format CycloneDX 1.5. The
/// optional serial number is omitted, so that the same sources always result in the same bytes.
pub(crate) fn write_sbom(
    file: &Path,
    program_set: ProgramSet,
    target: &str,
    created: &str,
) -> Result<()> {
    let linked_components = Components::resolve(program_set, target)?;
    let mut components = Vec::new();
    for package in linked_components.packages.values() {
        let mut component = json!({
            "type": "library",
            "bom-ref": package.url(),
            "name": package.name,
            "version": package.version,
            "purl": package.url(),
            "licenses": [{"expression": package.spdx_license()?}],
        });
        if let Some(repository) = &package.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        components.push(component);
    }
    components.extend(linked_components.toolchain_libraries.iter().map(|library| {
        json!({
            "type": "library",
            "bom-ref": library.url(),
            "name": library.name,
            "version": library.version,
            "purl": library.url(),
            "licenses": [{"expression": library.license}],
        })
    }));
    let name = match program_set {
        ProgramSet::Node => "boathook",
        ProgramSet::Cluster => "boathook-cluster",
        ProgramSet::Sources => "boathook-source",
    };
    let mut dependencies: Vec<Value> = linked_components
        .dependencies
        .iter()
        .map(|(component, urls)| json!({"ref": component, "dependsOn": urls}))
        .collect();
    dependencies.push(json!({"ref": name, "dependsOn": linked_components.programs}));
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
        "dependencies": dependencies,
    });
    let text = serde_json::to_string_pretty(&sbom)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
