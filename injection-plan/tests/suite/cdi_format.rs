//! The specifications of every shipped class on every recorded host keep to the CDI
//! specification (SPEC.md, versions 0.3.0 to 1.1.0), in both forms.
//!
//! Engines read strictly: these types are the format, and refuse any other field. CDI's
//! own JSON schema is not part of this project; it says the same, but for the rules on
//! names and versions, which engines check in code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::host::RecordedHost;
use device_class::name::CdiName;
use injection_plan::cdi::{CdiHookOptions, Generator, Specification, SpecificationForm};
use serde::Deserialize;

use crate::planning::{directory, recordings, shipped_sources};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
    container_edits: Option<Edits>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Edits {
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    device_nodes: Vec<Node>,
    #[serde(default)]
    mounts: Vec<Mount>,
    #[serde(default)]
    hooks: Vec<Hook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Node {
    path: PathBuf,
    host_path: Option<PathBuf>,
    r#type: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
    permissions: String,
    file_mode: Option<u32>,
    #[serde(rename = "gid")]
    _gid: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Hook {
    hook_name: String,
    path: PathBuf,
    args: Vec<String>,
    timeout: u32,
}

/// Returns the first rule of the CDI specification that a file breaks, if there is one.
fn fault(file: &File) -> Option<String> {
    let mut names = BTreeSet::new();
    if file.devices.is_empty() {
        return Some("no devices".to_owned());
    }
    for device in &file.devices {
        let name = format!("{}={}", file.kind, device.name);
        if let Err(error) = CdiName::try_from(name.clone()) {
            return Some(error.to_string());
        }
        if !names.insert(&device.name) {
            return Some(format!("{name} twice"));
        }
        if let Some(fault) = fault_of_edits(&device.container_edits) {
            return Some(format!("{name}: {fault}"));
        }
    }
    let common = file.container_edits.as_ref();
    if let Some(fault) = common.and_then(fault_of_edits) {
        return Some(format!("{}: {fault}", file.kind));
    }
    let needed = lowest_version(file);
    (file.cdi_version != needed).then(|| format!("{}, not {needed}", file.cdi_version))
}

fn fault_of_edits(edits: &Edits) -> Option<String> {
    let Edits {
        env,
        device_nodes,
        mounts,
        hooks,
    } = edits;
    if env.len() + device_nodes.len() + mounts.len() + hooks.len() == 0 {
        return Some("no edits".to_owned());
    }
    let is_variable = |text: &&String| text.find('=').is_some_and(|at| at > 0);
    if let Some(text) = env.iter().find(|text| !is_variable(text)) {
        return Some(format!("`{text}` is no variable"));
    }
    for node in device_nodes {
        let host = node.host_path.as_deref().unwrap_or(&node.path);
        let fits = node.path.is_absolute()
            && host.is_absolute()
            && has_whole_number(node)
            && !node.permissions.is_empty()
            && node.permissions.chars().all(|c| "rwm".contains(c))
            && node.file_mode.is_none_or(|mode| mode <= 0o7777);
        if !fits {
            return Some(format!("the node {}", node.path.display()));
        }
    }
    for mount in mounts {
        let paths = [&mount.host_path, &mount.container_path];
        if !paths.iter().all(|path| path.is_absolute()) || mount.options.is_empty() {
            return Some(format!("the mount {}", mount.container_path.display()));
        }
    }
    let is_hook = |hook: &Hook| {
        hook.hook_name == "createRuntime"
            && hook.path.is_absolute()
            && hook.args.len() == 4
            && hook.timeout > 0
    };
    let wrong = hooks.iter().find(|hook| !is_hook(hook))?;
    Some(format!("the hook {}", wrong.path.display()))
}

/// An engine reads the device number on the host, unless the file has type and major number.
fn has_whole_number(node: &Node) -> bool {
    match (node.r#type.as_deref(), node.major, node.minor) {
        (None, None, None) => true,
        (Some("c" | "b"), Some(major), Some(_)) => major > 0 && node.host_path.is_none(),
        _ => false,
    }
}

/// Returns the lowest version that has all fields of a file, by the table of versions in
/// SPEC.md.
fn lowest_version(file: &File) -> &'static str {
    let (_, class) = file.kind.split_once('/').unwrap();
    let nodes = file
        .devices
        .iter()
        .flat_map(|device| &device.container_edits.device_nodes);
    let has_host_path = nodes.clone().any(|node| node.host_path.is_some());
    let begins_with_digit = |device: &Device| device.name.starts_with(|c: char| c.is_ascii_digit());
    match () {
        () if class.contains('.') => "0.6.0",
        () if has_host_path || file.devices.iter().any(begins_with_digit) => "0.5.0",
        () => "0.3.0",
    }
}

/// The specifications of all classes on a recorded host.
fn specifications(host: &RecordedHost, hook: Option<CdiHookOptions<'_>>) -> Vec<Specification> {
    let sources = shipped_sources();
    let generator = Generator {
        selected_classes: &[],
        form: SpecificationForm {
            hook,
            host_root: Path::new("/"),
        },
    };
    generator
        .generate(sources.iter().map(|source| source.parse()), host)
        .specifications
}

#[test]
fn every_class_on_every_recorded_host_keeps_to_the_format() {
    let thin = Some(CdiHookOptions {
        program_path: Path::new("/opt/boathook/current/bin/boathook-hook"),
        timeout_seconds: 110,
        config_path: None,
    });
    let mut kinds = BTreeSet::new();
    for case in recordings(directory("testdata")) {
        let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
        let host = RecordedHost::parse(&text).unwrap();
        for hook in [thin, None] {
            for specification in specifications(&host, hook) {
                let text = serde_json::to_string(&specification).unwrap();
                let file: File = serde_json::from_str(&text).unwrap();
                assert_eq!(fault(&file), None, "{}: {text}", case.display());
                kinds.insert(file.kind);
            }
        }
    }
    assert!(kinds.len() > 25, "{kinds:?}");
}

/// Each rule of these tests finds the fault that it is for.
#[test]
fn files_that_engines_refuse_are_found() {
    let file = |version: &str, device: &str| {
        format!(r#"{{"cdiVersion": "{version}", "kind": "a.com/x", "devices": [{device}]}}"#)
    };
    let device = r#"{"name": "x-0", "containerEdits": {"env": ["X=0"]}}"#;
    let twice = format!("{device}, {device}");
    for (version, devices, wanted) in [
        ("0.3.0", device, None),
        ("0.5.0", device, Some("0.5.0, not 0.3.0")),
        ("0.3.0", "", Some("no devices")),
        ("0.3.0", &twice, Some("a.com/x=x-0 twice")),
        (
            "0.3.0",
            &device.replace("x-0", "0"),
            Some("0.3.0, not 0.5.0"),
        ),
        (
            "0.3.0",
            &device.replace("\"X=0\"", ""),
            Some("a.com/x=x-0: no edits"),
        ),
        (
            "0.3.0",
            &device.replace("X=0", "=0"),
            Some("a.com/x=x-0: `=0` is no variable"),
        ),
    ] {
        let file: File = serde_json::from_str(&file(version, devices)).unwrap();
        assert_eq!(fault(&file).as_deref(), wanted, "{devices}");
    }
    let unknown = file("0.3.0", &device.replace("env", "environment"));
    assert!(serde_json::from_str::<File>(&unknown).is_err());
}
