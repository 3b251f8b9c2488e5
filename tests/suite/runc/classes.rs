//! Every shipped class, on every host that was recorded for it: the plan is
//! compared with a real container.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::bundle::{Bundle, HookCommand};
use harness::captured::Captured;
use harness::loader::{self, Loaded};
use harness::probe::{Access, Kind, Questions, Report};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::Value;

use crate::lab::{Lab, STAGE, asking, hook, on_each_cgroup_version};

on_each_cgroup_version!(every_class_is_injected_as_planned);

/// The directory in which the kernel's drivers list their devices.
const DRIVERS: &str = "/proc/driver";

/// A class, and a host that was recorded for it.
pub(crate) struct Case {
    pub(crate) class: String,
    directory: PathBuf,
}

fn every_class_is_injected_as_planned(lab: &Lab) {
    for case in cases() {
        case.run(lab);
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let testdata = binaries::source_tree().join("device-class/testdata");
    let mut cases = Vec::new();
    let mut unseen = vec![testdata.clone()];
    while let Some(directory) = unseen.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                unseen.push(path);
            } else if path.ends_with("host.txt") {
                let below = directory.strip_prefix(&testdata).unwrap();
                let class = below.iter().next().unwrap().to_str().unwrap().to_string();
                let directory = directory.clone();
                cases.push(Case { class, directory });
            }
        }
    }
    cases.sort_by_key(Case::name);
    let classes = fs::read_dir(binaries::source_tree().join("device-class/classes")).unwrap();
    for file in classes.map(|entry| entry.unwrap().path()) {
        let class = file.file_stem().unwrap();
        let is_recorded = cases.iter().any(|case| *case.class == *class);
        assert!(is_recorded, "no host.txt in testdata for {class:?}");
    }
    cases
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let last = self.directory.file_name().unwrap().to_string_lossy();
        if last == self.class {
            self.class.clone()
        } else {
            format!("{} ({last})", self.class)
        }
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.join(file)).unwrap()
    }

    /// The first request of the golden plan that is granted.
    fn request(&self) -> Vec<(String, String)> {
        let plan = self.read("plan.txt");
        let mut lines = plan.lines();
        let granted = loop {
            let line = lines
                .next()
                .unwrap_or_else(|| panic!("{} grants nothing", self.name()));
            let answer = lines.clone().next().unwrap_or_default();
            let refused = answer.starts_with("refused") || answer.starts_with("no request");
            if let (Some(request), false) = (line.strip_prefix("$ "), refused) {
                break request;
            }
        };
        let pairs = granted.split(' ').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    fn run(&self, lab: &Lab) {
        let host = RecordedHost::new(&self.class, &self.read("host.txt")).unwrap();
        self.check_discovery(&host);
        let plan = self.explain(&host);
        let steps = plan["steps"].as_array().unwrap();
        // A recorded host has no network interface that could be moved; `net_interfaces` has real ones.
        if steps.iter().any(|step| step["action"] == "net-interfaces") {
            return;
        }
        for step in steps {
            add_programmer(&host, step);
        }
        let mut questions = Questions::new();
        for path in places(steps).keys() {
            questions = questions.path(path);
        }
        let masks: Vec<_> = steps.iter().filter(|s| s["action"] == "mask").collect();
        for path in masks.iter().flat_map(|mask| hidden(&host, mask)) {
            questions = questions.path(path);
        }
        let bundle = self.bundle(&host, asking(&questions));
        let report = lab.probe(&bundle);
        for mask in masks {
            self.check_mask(&host, mask, &report);
        }
        let places = places(steps);
        for (path, kind) in &places {
            let seen = report.path(path).unwrap();
            let of = format!("{}: {}", self.name(), path.display());
            assert_eq!(seen.kind, *kind, "{of}");
            if let Some(number) = find_made_node(steps, path) {
                // Such a driver need not be loaded here; what the cgroup refuses is
                // EPERM.
                assert_eq!(seen.number(), Some(number), "{of}");
                assert_ne!(seen.read, Access::refused("EPERM"), "{of}");
            } else if *kind == Kind::CharacterDevice {
                assert_eq!(seen.number(), Some(host.device().number()), "{of}");
                assert_eq!(seen.read, Access::Granted, "{of}");
            }
        }
        self.check_libraries(lab, &host, steps);
    }

    /// The directory made real has the devices that the recording has.
    fn check_discovery(&self, host: &RecordedHost) {
        let listed = boathook(host, &["list", "--all", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let mine = listed["devices"].as_array().unwrap().iter();
        let found: Vec<&str> = mine
            .filter(|device| device["class"] == self.class.as_str())
            .map(|device| device["id"].as_str().unwrap())
            .collect();
        let golden = self.read("inventory.txt");
        let expected: Vec<&str> = golden
            .lines()
            .filter(|line| !line.starts_with("warning: "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(found, expected, "{}", self.name());
    }

    fn explain(&self, host: &RecordedHost) -> Value {
        let bundle = self.bundle(host, vec!["true".to_string()]);
        let directory = bundle.directory().to_str().unwrap();
        let printed = boathook(host, &["explain", "--json", "--bundle", directory]);
        serde_json::from_str(&printed).unwrap()
    }

    fn bundle(&self, host: &RecordedHost, command: Vec<String>) -> Bundle {
        // The runtime would mask files of /sys/firmware after the hook.
        let mut builder = Bundle::builder(Rootfs::Glibc)
            .args(command)
            .without_masked_paths();
        // The files that the kernel of the recorded host shows in each container.
        for directory in [DRIVERS, "/sys"] {
            let source = host.root().join(&directory[1..]);
            if source.is_dir() {
                builder = builder.hook(STAGE, HookCommand::binding(&source, directory));
            }
        }
        builder = builder.hook(STAGE, hook(host));
        for (name, value) in self.request() {
            builder = builder.env(&name, &value);
        }
        builder.build().unwrap()
    }

    /// A masked directory has the contents of the plan, and nothing else.
    fn check_mask(&self, host: &RecordedHost, mask: &Value, report: &Report) {
        for (path, text) in mask["files"].as_object().unwrap() {
            let seen = report.path(path).unwrap().text.as_deref();
            assert_eq!(seen, text.as_str(), "{}: {path}", self.name());
        }
        for path in hidden(host, mask) {
            let seen = report.path(&path).unwrap().kind;
            assert_eq!(seen, Kind::Missing, "{}: {path}", self.name());
        }
    }

    /// Programs in the container load the libraries by their names.
    fn check_libraries(&self, lab: &Lab, host: &RecordedHost, steps: &[Value]) {
        let loaders = steps.iter().filter(|step| step["action"] == "loader");
        let names = loaders.flat_map(|step| step["libraries"].as_array().unwrap());
        let names = names.map(|pair| pair[0].as_str().unwrap().to_string());
        let wanted: Vec<_> = names.map(|name| RecordedHost::wanted(&name)).collect();
        if wanted.is_empty() {
            return;
        }
        let bundle = self.bundle(host, loader::command(&wanted));
        for loaded in loader::parse(&lab.run(&bundle)).unwrap() {
            let found = matches!(loaded, Loaded::Found { .. });
            assert!(found, "{}: {loaded:?}", self.name());
        }
    }
}

/// Returns the paths at which the steps put files.
fn places(steps: &[Value]) -> BTreeMap<PathBuf, Kind> {
    let mut places = BTreeMap::new();
    for step in steps {
        let path = Path::new(step["path"].as_str().unwrap_or_default());
        let kind = match step["action"].as_str().unwrap() {
            "node" | "make-node" | "link" => Kind::CharacterDevice,
            "mask" => {
                let files = step["files"].as_object().unwrap().keys();
                places.extend(files.map(|path| (path.into(), Kind::File)));
                // Links of the kernel lead to directories of devices.
                let links = step["links"].as_object().into_iter().flatten();
                places.extend(links.map(|(path, _)| (path.into(), Kind::Directory)));
                Kind::Directory
            }
            "directory" => Kind::Directory,
            "file" if path.ends_with("socket") => Kind::Other,
            "file" | "library" => Kind::File,
            _ => continue,
        };
        places.insert(path.to_path_buf(), kind);
    }
    places
}

/// Finds the number of a node that the hook makes.
fn find_made_node(steps: &[Value], path: &Path) -> Option<(u64, u64)> {
    let mut made = steps.iter().filter(|step| step["action"] == "make-node");
    let step = made.find(|step| step["path"].as_str().map(Path::new) == Some(path))?;
    Some((step["major"].as_u64()?, step["minor"].as_u64()?))
}

/// The files of the host's directory that a container does not see.
fn hidden(host: &RecordedHost, mask: &Value) -> Vec<String> {
    let shown = mask["shown"].as_array().unwrap().iter();
    let mut seen: Vec<&str> = shown.map(|m| m["path"].as_str().unwrap()).collect();
    let files = mask["files"].as_object().unwrap();
    seen.extend(files.keys().map(String::as_str));
    let links = mask["links"].as_object().into_iter().flatten();
    seen.extend(links.map(|(path, _)| path.as_str()));
    let mut hidden = Vec::new();
    // A host need not have a directory of which only texts are shown.
    let top = mask["path"].as_str().unwrap().to_string();
    let mut unseen = Vec::from_iter(host.root().join(&top[1..]).is_dir().then_some(top));
    while let Some(path) = unseen.pop() {
        if seen.contains(&path.as_str()) {
            continue;
        }
        let on_host = host.root().join(&path[1..]);
        // Links of /sys lead to directories with further links, in circles.
        let entries = (!on_host.is_symlink()).then(|| fs::read_dir(&on_host));
        let Some(Ok(entries)) = entries else {
            hidden.push(path);
            continue;
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        unseen.extend(names.map(|name| format!("{path}/{name}")));
    }
    hidden
}

/// A program that brings the device into the requested state.
fn add_programmer(host: &RecordedHost, step: &Value) {
    if step["action"] == "prepare" {
        let text = |key: &str| step[key].as_str().unwrap().to_string();
        let file = host.root().join(text("file").trim_start_matches('/'));
        let script = format!("#!/bin/sh\necho {} > {}\n", text("wanted"), file.display());
        host.add_program(&text("program"), &script).unwrap();
    }
}

fn boathook(host: &RecordedHost, arguments: &[&str]) -> String {
    let mut command = Command::new(binaries::program("boathook").unwrap());
    command
        .arg("--config")
        .arg(host.config_file())
        .args(arguments);
    let ran = Captured::run(&mut command).and_then(Captured::success);
    ran.unwrap().stdout
}
