//! Makes plans from requests, for the tests of plans.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use device_class::discover;
use device_class::load::{self, ClassSource};
use device_class::{DeviceClass, HostView};
use injection_plan::plan::{self, Authority, InjectionPlan, PlanInput, SpecDevices};
use injection_plan::request::Request;

/// The directory of the crate that has the classes and the recorded hosts.
pub(crate) fn directory(name: &str) -> PathBuf {
    let device_class = concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class");
    Path::new(device_class).join(name)
}

/// Returns the sources of all shipped classes. They are copies that only this user can change: the
/// loader refuses the files of a clone that another user owns, or that was made with the umask 002.
pub(crate) fn shipped_sources() -> Vec<ClassSource> {
    let copies = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory("classes")).unwrap() {
        let entry = entry.unwrap();
        let copy = copies.path().join(entry.file_name());
        fs::write(&copy, fs::read(entry.path()).unwrap()).unwrap();
        fs::set_permissions(copy, Permissions::from_mode(0o644)).unwrap();
    }
    load::read_sources(&[copies.path().to_owned()]).unwrap()
}

/// Returns all shipped classes.
pub(crate) fn shipped() -> Vec<DeviceClass> {
    let sources = shipped_sources();
    let parse = |source: &ClassSource| source.parse().unwrap_or_else(|error| panic!("{error}"));
    sources.iter().map(parse).collect()
}

/// Returns the shipped class with this name.
pub(crate) fn shipped_class(name: &str) -> DeviceClass {
    let file = directory("classes").join(format!("{name}.toml"));
    ClassSource::read(&file, &[]).unwrap().parse().unwrap()
}

/// A class of this name, from a file that is named after it.
pub(crate) fn parse(name: &str, text: &str) -> Result<DeviceClass, String> {
    let file = format!("{name}.toml");
    let name = name.to_owned().try_into().unwrap();
    DeviceClass::parse(name, Path::new(&file), text).map_err(|error| error.to_string())
}

/// The recorded hosts below a directory.
pub(crate) fn recordings(below: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unseen = vec![below];
    while let Some(directory) = unseen.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                unseen.push(path);
            } else if path.ends_with("host.txt") {
                found.push(directory.clone());
            }
        }
    }
    found.sort();
    found
}

/// Returns the plan for a container with this request, or the error.
pub(crate) fn plan(
    class: &DeviceClass,
    request: &Request,
    host: &dyn HostView,
    authority: &Authority,
) -> Result<InjectionPlan, String> {
    let found = discover::look_up_class(class, request.edit_selection(), host);
    let input = PlanInput {
        class,
        request,
        found_class: &found.map_err(with_causes)?,
        authority,
    };
    plan::plan_injection(&[input], &SpecDevices::default()).map_err(with_causes)
}

pub(crate) fn with_causes(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// The request authorizes itself, as outside Kubernetes.
pub(crate) fn asker() -> Authority {
    let reason = "this is a test".into();
    Authority::Requester {
        reason,
        allows_trusted_capabilities: true,
    }
}
