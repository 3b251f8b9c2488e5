//! Licences and sources of all dependencies, by the lists in deny.toml.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    graph: Graph,
    licenses: Licenses,
    sources: Sources,
}

/// The architectures for which programs are built: dependencies of others are not
/// shipped.
#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// The part of `cargo metadata` that is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    source: Option<String>,
}

#[test]
fn every_licence_and_source_is_allowed() {
    let tree = binaries::source_tree();
    let text = fs::read_to_string(tree.join("deny.toml")).unwrap();
    let deny: Deny = toml::from_str(&text).unwrap();
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(
            deny.graph
                .targets
                .iter()
                .map(|target| format!("--filter-platform={target}")),
        )
        .current_dir(tree);
    let printed = Captured::run(&mut cargo)
        .and_then(Captured::success)
        .unwrap();
    let metadata: Metadata = serde_json::from_str(&printed.stdout).unwrap();
    assert!(metadata.packages.len() > 50);
    for Package {
        name,
        license,
        source,
    } in metadata.packages
    {
        let license = license.unwrap_or_else(|| panic!("{name} states no licence"));
        assert!(
            is_allowed(&license, &deny.licenses.allow),
            "{name}: {license}"
        );
        let Some(source) = source else { continue };
        let registry = source.trim_start_matches("registry+");
        let known = deny
            .sources
            .allow_registry
            .iter()
            .any(|one| one == registry);
        assert!(known, "{name}: {source}");
    }
}

/// Whether an SPDX expression leaves a choice of allowed licences. A slash is the
/// old form of OR; AND binds tighter than OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let text = expression.replace('/', " OR ");
    let (first, rest) = match text.trim().strip_prefix('(') {
        None => ("", text.as_str()),
        Some(inner) => inner.split_once(')').unwrap_or((inner, "")),
    };
    let one = |part: &str| {
        part.split(" AND ")
            .all(|name| allowed.iter().any(|one| one == name.trim()))
    };
    let any = |text: &str| text.split(" OR ").any(one);
    match first {
        "" => any(rest),
        // `(A OR B) AND C`, the only form with parentheses that is in use.
        _ => any(first) && any(rest.trim().strip_prefix("AND ").unwrap_or("?")),
    }
}

#[test]
fn expressions_are_understood() {
    let allowed = ["MIT", "ISC"].map(str::to_string);
    for (expression, wanted) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND GPL-3.0", false),
        ("(GPL-3.0) AND ISC", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), wanted, "{expression}");
    }
}
