//! Finds the environment variables that Docker sets because of device requests such as `--gpus`.
//! Docker chooses a driver for a request, and sets the driver's variables when it starts the
//! container.

use std::fs;
use std::path::Path;

use device_class::DeviceClass;
use device_class::class::Compatibility;
use device_class::config::{Config, InstalledDirectories};
use device_class::discover;
use device_class::load;
use hook::planner;
use runtime_config::program_directories;

use crate::command::containers::DeviceRequest;

/// The maximum number of indices in a variable such as `DUMMY_VISIBLE_DEVICES=0,1,2`. Docker sets
/// such a variable for a request that says only how many devices it needs.
const MAX_INDEX_COUNT: i64 = 4096;

/// A device request and the classes that may fulfil it. The search for these classes reads all
/// class files and may scan the host, so it is done once for each request.
pub(in crate::command) struct ExaminedDeviceRequest<'r> {
    request: &'r DeviceRequest,
    /// The first candidate is the class whose driver Docker is assumed to choose.
    candidates: Vec<DriverCandidate>,
}

impl<'r> ExaminedDeviceRequest<'r> {
    pub(in crate::command) fn examine_all(
        requests: &'r [DeviceRequest],
        config: &Config,
    ) -> Vec<Self> {
        let examine = |request| ExaminedDeviceRequest {
            request,
            candidates: find_driver_candidates(request, config),
        };
        requests.iter().map(examine).collect()
    }
}

/// Returns the variables, each as `NAME=VALUE`, that Docker sets because of `requests`, such as
/// `DUMMY_VISIBLE_DEVICES=all`.
pub(in crate::command) fn list_variables(requests: &[ExaminedDeviceRequest<'_>]) -> Vec<String> {
    let variables = requests.iter().flat_map(|examined_request| {
        let candidate = examined_request.candidates.first().into_iter();
        candidate
            .flat_map(|candidate| list_class_variables(examined_request.request, &candidate.class))
    });
    variables.collect()
}

/// Returns the variables of `class` that Docker sets because of `request`. One variable lists the
/// devices, and the other one lists the capabilities of the class.
fn list_class_variables(request: &DeviceRequest, class: &DeviceClass) -> Vec<String> {
    let devices = match (request.device_ids(), request.count) {
        (ids @ [_, ..], _) => Some(ids.join(",")),
        ([], count @ 1..) => {
            let indices: Vec<String> = (0..count.min(MAX_INDEX_COUNT))
                .map(|index| index.to_string())
                .collect();
            Some(indices.join(","))
        }
        ([], 0) => None,
        ([], _) => Some("all".to_owned()),
    };
    let class_request = &class.spec.request;
    let devices = devices.map(|devices| format!("{}={devices}", class_request.env));
    // Docker adds capabilities such as `gpu` to a request, and chooses the driver by them. They are
    // no capabilities of the class, so they are left out.
    let class_capabilities = class.spec.capabilities();
    let is_of_class = |capability: &&str| {
        let mut class_capabilities = class_capabilities.iter();
        class_capabilities.any(|class_capability| class_capability.as_str() == *capability)
    };
    let capabilities: Vec<&str> = request.capabilities().filter(is_of_class).collect();
    let capabilities = class_request
        .capabilities_env
        .as_ref()
        .filter(|_| !capabilities.is_empty())
        .map(|variable| format!("{variable}={}", capabilities.join(",")));
    devices.into_iter().chain(capabilities).collect()
}

/// Describes what a user can do if Docker finds no driver for `requests`. Docker looks for the
/// driver's program only when the Docker daemon starts.
pub(super) fn describe_driver_fix(
    requests: &[ExaminedDeviceRequest<'_>],
    config: &Config,
) -> Option<String> {
    let compatibility = &requests.first()?.candidates.first()?.compatibility;
    let driver = &compatibility.name;
    let restart =
        "`systemctl restart docker`: it looks for the driver's program only when it starts";
    Some(if is_linked_to_boathook(compatibility, &config.host_root) {
        restart.to_owned()
    } else {
        format!("`boathook-init install --engine docker --as {driver}`, then {restart}")
    })
}

/// Returns a message if Docker may choose among several drivers for one of `requests`. The message
/// says which driver is examined.
pub(super) fn describe_other_drivers(requests: &[ExaminedDeviceRequest<'_>]) -> Option<String> {
    requests.iter().find_map(|examined_request| {
        let candidates = examined_request.candidates.iter();
        let mut drivers: Vec<&str> = candidates.map(DriverCandidate::driver).collect();
        drivers.dedup();
        let (examined_driver, others) = drivers.split_first()?;
        (!others.is_empty()).then(|| {
            format!(
                "docker may choose the driver {} for `--gpus`, and {examined_driver} is examined \
                 here: name one, such as `--gpus driver={examined_driver},count=1`",
                drivers.join(" or ")
            )
        })
    })
}

/// A class whose vendor's driver Docker may choose for a request.
struct DriverCandidate {
    class: DeviceClass,
    compatibility: Compatibility,
}

impl DriverCandidate {
    fn driver(&self) -> &str {
        self.compatibility.name.as_str()
    }
}

/// Returns the classes whose vendor's driver Docker may choose for the request, sorted by the names
/// of the drivers and of the classes. Several classes are reduced by four properties, one after the
/// other. First, the request names the driver. Second, the driver's program is a link to Boathook.
/// Third, the host has devices of the class. Fourth, the class extends no other class. A property
/// that no class has is skipped.
fn find_driver_candidates(request: &DeviceRequest, config: &Config) -> Vec<DriverCandidate> {
    let sources = load::read_each_source(&config.classes)
        .into_iter()
        .flatten();
    let classes = sources.filter_map(|source| config.class(&source.ok()?).ok());
    let mut candidates: Vec<DriverCandidate> = classes
        .filter_map(|class| {
            let compatibility = class.spec.compatibility.clone()?;
            Some(DriverCandidate {
                class,
                compatibility,
            })
        })
        .filter(|candidate| {
            list_programs(&candidate.compatibility).next().is_some()
                && (request.driver.is_empty() || request.driver == candidate.driver())
        })
        .collect();
    let is_named = |candidate: &DriverCandidate| {
        let mut capabilities = request.capabilities();
        capabilities.any(|capability| capability == candidate.driver())
    };
    let is_installed = |candidate: &DriverCandidate| {
        is_linked_to_boathook(&candidate.compatibility, &config.host_root)
    };
    let host = planner::open_host(config).ok();
    let has_devices = |candidate: &DriverCandidate| {
        let host = host.as_ref();
        host.is_some_and(|host| {
            let inventory = discover::find_devices(&candidate.class, host);
            !inventory.devices.is_empty()
        })
    };
    let extends_none = |candidate: &DriverCandidate| candidate.class.spec.extends.is_none();
    let preferences: [&dyn Fn(&DriverCandidate) -> bool; 4] =
        [&is_named, &is_installed, &has_devices, &extends_none];
    for is_preferred in preferences {
        if candidates.len() > 1 {
            let (preferred, others): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(is_preferred);
            candidates = if preferred.is_empty() {
                others
            } else {
                preferred
            };
        }
    }
    candidates.sort_by(|one, other| {
        let key = |candidate: &DriverCandidate| {
            let class = candidate.class.name.to_string();
            (candidate.driver().to_owned(), class)
        };
        key(one).cmp(&key(other))
    });
    candidates
}

/// Returns the names of the driver's programs. Docker has the driver only if it finds one of them.
fn list_programs(compatibility: &Compatibility) -> impl Iterator<Item = &str> {
    let runtime_programs = compatibility.runtime_programs.iter();
    let programs = compatibility.hook_programs.iter().chain(runtime_programs);
    programs.map(|program| program.as_str())
}

/// Returns whether a program of the driver is a link to Boathook, which
/// `boathook-init install --as` creates.
fn is_linked_to_boathook(compatibility: &Compatibility, host_root: &Path) -> bool {
    let directories = InstalledDirectories::find(host_root).unwrap_or_default();
    let own_directory = directories.hook_path().parent().map(Path::to_owned);
    list_programs(compatibility).any(|program| {
        program_directories().any(|directory| {
            let path = Path::new(directory).join(program);
            let link = fs::read_link(host_root.join(path.strip_prefix("/").unwrap_or(&path)));
            link.is_ok_and(|link| link.parent() == own_directory.as_deref())
        })
    })
}
