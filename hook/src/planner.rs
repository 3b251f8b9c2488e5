//! Computes the injection plan of a container from its requests: the device nodes, files and device
//! rules that the container gets.

mod apparmor;
mod container_requests;
mod image_modules;
mod masked_paths;
mod other_classes;
mod spec_device_links;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use device_class::DeviceClass;
use device_class::class::{NameConflict, NameOwners};
use device_class::config::Config;
use device_class::discover::{self, FoundClass, LookUpError};
use device_class::host::RealHost;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;
use injection_plan::plan::{
    self, Authority, InjectionPlan, LIBRARY_PATH_ENV, PlanError, PlanInput, SpecDevices,
};
use injection_plan::request::{RefusedRequest, Request, RequestError};

use crate::authorization::{Decision, RequestSourceKind, authorize, is_request_considered};
use crate::exit::ExitCode;
use crate::oci::Bundle;
use crate::trust::{self, ContainerOrigin, OriginError, TrustError};

pub use crate::authorization::Caller;
pub use container_requests::UnknownClass;
use container_requests::class_name_of_file;
pub use container_requests::{ContainerRequests, class_file_path};
pub use other_classes::{
    DOMAIN_WITHOUT_VENDOR, describe_classes_with_resource, describe_other_classes,
};

#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    #[error(transparent)]
    Class(#[from] FileError),
    #[error(transparent)]
    EnvNameConflict(#[from] NameConflict),
    #[error(
        "{unknown_class}{}",
        describe_unreadable_class_files(unreadable_class_files)
    )]
    UnknownClass {
        unknown_class: UnknownClass,
        /// The errors of the class files that cannot be read. One of these files may contain the
        /// requested class.
        unreadable_class_files: Vec<FileError>,
    },
    #[error("host_root {} cannot be opened", path.display())]
    HostRoot {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl PlannerError {
    /// Returns whether the error is a conflict: two devices, or a device and config.json, need the
    /// same path in the container.
    pub fn is_conflict(&self) -> bool {
        let Self::Plan(error) = self else {
            return false;
        };
        matches!(
            error,
            PlanError::Conflict { .. } | PlanError::OccupiedPath { .. }
        )
    }

    /// Returns the exit code for this error. It says that the host's configuration is invalid, or
    /// that the request cannot be satisfied.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            PlannerError::Class(_)
            | PlannerError::EnvNameConflict(_)
            | PlannerError::HostRoot { .. }
            | PlannerError::LookUp(LookUpError::DriverRoot { .. }) => ExitCode::Config,
            _ => ExitCode::Request,
        }
    }
}

/// A request for devices of one class, and where the request was found.
struct ClassRequest {
    class: Rc<DeviceClass>,
    request: Request,
    source: RequestSourceKind,
}

#[derive(Default)]
struct CollectedRequests {
    requests: Vec<ClassRequest>,
    /// The errors of invalid class files whose classes the container does not request. Such an
    /// error is only reported, and the container starts.
    class_file_errors: Vec<FileError>,
}

/// Returns the injection plan of a container. Most containers request nothing. For these, no class
/// file is parsed, and the plan has no devices.
pub fn plan_container_injection(
    bundle: &Bundle,
    caller: &Caller,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let origin = ContainerOrigin::from_bundle(bundle);
    let container_requests = ContainerRequests::new(bundle, origin.as_ref().ok());
    let CollectedRequests {
        requests,
        class_file_errors,
    } = collect_requests(&container_requests, caller, config)?;
    let mut plan = match origin {
        Ok(origin) if !requests.is_empty() => {
            compute_plan(&requests, bundle, &origin, caller, config)?
        }
        Ok(_) => InjectionPlan::default(),
        // It is uncertain whether the container belongs to a pod. The container is refused only if
        // it requests devices; otherwise it starts.
        Err(error) => {
            let properties = trust::collect_container_properties(bundle, None, &[], &config.trust);
            let annotation_source =
                trust::may_have_plugin_annotations(bundle).then_some(RequestSourceKind::Annotation);
            let mut sources = requests
                .iter()
                .map(|request| request.source)
                .chain(annotation_source);
            let is_refused =
                |source| matches!(authorize(caller, source, &properties), Decision::Refused(_));
            if sources.any(is_refused) {
                return Err(error.into());
            }
            InjectionPlan::default()
        }
    };
    if !bundle.detached_requests.is_empty() {
        plan.remove_detached_devices(&bundle.detached_requests);
    }
    if let Some(capabilities) = &bundle.capabilities {
        plan.set_capability_states(capabilities);
    }
    plan.env.retain(|name, _| bundle.env.get(name).is_none());
    let has_paths_masked_by_hook = !bundle.masked_paths.removed_masked_paths.is_empty();
    if has_paths_masked_by_hook || plan.file_mounts_mut().next().is_some() {
        let host = open_host(config)?;
        masked_paths::apply_masked_paths(&mut plan, bundle, caller, &host);
    }
    let class_file_errors = class_file_errors
        .iter()
        .map(|error| format!("class left out: {error}"));
    plan.warnings.extend(class_file_errors);
    Ok(plan)
}

/// Returns whether the container certainly requests nothing. If this is unclear, returns `false`.
pub fn requests_nothing(bundle: &Bundle, caller: &Caller, config: &Config) -> bool {
    let origin = ContainerOrigin::from_bundle(bundle);
    let container_requests = ContainerRequests::new(bundle, origin.as_ref().ok());
    let requests = collect_requests(&container_requests, caller, config);
    !trust::may_have_plugin_annotations(bundle)
        && requests.is_ok_and(|requests| requests.requests.is_empty())
}

fn compute_plan(
    requests: &[ClassRequest],
    bundle: &Bundle,
    origin: &ContainerOrigin,
    caller: &Caller,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let host = open_host(config)?;
    let mut authorized_requests = Vec::new();
    for request in requests {
        if let Some(authority) = find_authority(
            &request.class,
            request.source,
            bundle,
            origin,
            caller,
            config,
        )? {
            authorized_requests.push((request, authority));
        }
    }
    let found_classes = authorized_requests
        .iter()
        .map(|(request, authority)| {
            let mut selection = request.request.edit_selection();
            // The kubelet may have allocated other devices than the request names. So the look-up
            // of udev's links is not limited to the requested devices.
            if matches!(authority, Authority::Kubelet(_)) {
                selection.requested_devices = None;
            }
            discover::look_up_class(&request.class, selection, &host)
        })
        .collect::<Result<Vec<FoundClass>, _>>()?;
    let inputs = authorized_requests.iter().zip(&found_classes).map(
        |((class_request, authority), found_class)| PlanInput {
            class: &class_request.class,
            request: &class_request.request,
            found_class,
            authority,
        },
    );
    let plan = plan_for_bundle(&inputs.collect::<Vec<_>>(), bundle, &host, config);
    plan.map_err(|mut error| {
        if let PlannerError::Plan(PlanError::Request(RefusedRequest {
            error:
                RequestError::UnknownDevice {
                    class: name,
                    known_devices,
                    ..
                },
            ..
        })) = &mut error
        {
            let mut inputs_with_found_classes = authorized_requests.iter().zip(&found_classes);
            let request_without_device =
                inputs_with_found_classes.find(|((class_request, _), found_class)| {
                    class_request.class.name == *name && found_class.inventory.devices.is_empty()
                });
            let other_classes_note = request_without_device.and_then(|((class_request, _), _)| {
                describe_other_classes(&class_request.class, config)
            });
            known_devices.extend(
                other_classes_note.map(|other_classes_note| format!("; {other_classes_note}")),
            );
        }
        if let PlannerError::Plan(PlanError::Unusable { owner, problem }) = &mut error {
            let mut class_requests = authorized_requests.iter().map(|(request, _)| request);
            let class_request = class_requests.find(|request| request.class.name.as_str() == owner);
            let note = class_request
                .and_then(|request| describe_classes_with_resource(&request.class, config));
            problem.extend(note.map(|note| format!("; {note}")));
        }
        error
    })
}

/// Computes a plan from `inputs`, and adapts it to the container. The plan then fits the
/// container's `LD_LIBRARY_PATH`, the devices that config.json already gives it, and the library
/// directory of its image.
fn plan_for_bundle(
    inputs: &[PlanInput<'_>],
    bundle: &Bundle,
    host: &RealHost,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let mut plan = plan::plan_injection(inputs, &bundle.spec_devices)?;
    let has_access_to_all_devices = bundle.has_access_to_all_devices(&config.host_root);
    for grant in &mut plan.grants {
        grant.has_access_to_all_devices = has_access_to_all_devices;
    }
    if let Some(value) = bundle.env.get(LIBRARY_PATH_ENV) {
        plan.add_library_path_dirs(value);
    }
    spec_device_links::add_links_of_spec_devices(&mut plan, &bundle.spec_devices, host);
    image_modules::relocate_image_modules(&mut plan, &bundle.rootfs);
    Ok(plan)
}

/// Returns who authorizes a request for devices of the class. Returns `None` if the request is
/// ignored.
fn find_authority(
    class: &DeviceClass,
    source: RequestSourceKind,
    bundle: &Bundle,
    origin: &ContainerOrigin,
    caller: &Caller,
    config: &Config,
) -> Result<Option<Authority>, TrustError> {
    let trusted_pods = &class.settings.trusted_pods;
    let properties =
        trust::collect_container_properties(bundle, Some(origin), trusted_pods, &config.trust);
    let decision = authorize(caller, source, &properties);
    trust::determine_authority(decision, origin, &class.name, bundle, &config.trust)
}

/// Returns whether an environment variable alone gives the container devices of the class. Returns
/// false if the kubelet must also have allocated the devices.
pub fn is_variable_sufficient(
    class: &DeviceClass,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, PlannerError> {
    let origin = ContainerOrigin::from_bundle(bundle)?;
    let (source, caller) = (RequestSourceKind::Variable, &Caller::Engine);
    let authority = find_authority(class, source, bundle, &origin, caller, config)?;
    Ok(matches!(authority, Some(Authority::Requester { .. })))
}

/// A device class, and the result of a scan of the host for its devices. A caller that makes plans
/// for many containers reuses the result, and scans the host only once.
pub struct ScannedClass {
    pub class: DeviceClass,
    pub found: FoundClass,
}

/// Returns the injection plan for the devices that users requested with `boathook attach`.
/// `classes` are results of an earlier scan, so this function does not scan the host.
pub fn plan_attached_devices<'l>(
    bundle: &Bundle,
    classes: impl IntoIterator<Item = &'l ScannedClass>,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let origin = ContainerOrigin::from_bundle(bundle)?;
    let container_requests = ContainerRequests::new(bundle, Some(&origin));
    let mut planned_requests = Vec::new();
    for scanned_class in classes {
        for (request, source) in container_requests.parse_attach_requests(&scanned_class.class)? {
            let caller = &Caller::Attach;
            let authority = find_authority(
                &scanned_class.class,
                source,
                bundle,
                &origin,
                caller,
                config,
            )?;
            planned_requests.extend(authority.map(|authority| (scanned_class, request, authority)));
        }
    }
    let inputs = planned_requests
        .iter()
        .map(|(scanned_class, request, authority)| PlanInput {
            class: &scanned_class.class,
            request,
            found_class: &scanned_class.found,
            authority,
        });
    plan_for_bundle(
        &inputs.collect::<Vec<_>>(),
        bundle,
        &open_host(config)?,
        config,
    )
}

/// Adds masks to the plan of a running container. A mask is a read-only tmpfs over a directory in
/// which the kernel lists devices, such as /sys/class/drm. The masks hide unplugged devices of
/// `classes`, the classes from which the container has or had devices. The devices of config.json
/// (`spec_devices`) stay visible.
pub fn add_device_masks<'l>(
    plan: &mut InjectionPlan,
    classes: impl IntoIterator<Item = &'l ScannedClass>,
    spec_devices: &SpecDevices,
    config: &Config,
) -> Result<(), PlannerError> {
    spec_device_links::add_empty_masks(plan, classes);
    spec_device_links::add_links_of_spec_devices(plan, spec_devices, &open_host(config)?);
    Ok(())
}

pub fn open_host(config: &Config) -> Result<RealHost, PlannerError> {
    RealHost::open(&config.host_root).map_err(|error| PlannerError::HostRoot {
        path: config.host_root.clone(),
        error,
    })
}

fn collect_requests(
    container_requests: &ContainerRequests<'_>,
    caller: &Caller,
    config: &Config,
) -> Result<CollectedRequests, PlannerError> {
    let sources = match load::read_each_source(&config.classes) {
        Err(error) if !container_requests.may_request_any_class() => {
            return Ok(CollectedRequests {
                requests: Vec::new(),
                class_file_errors: vec![error],
            });
        }
        sources => sources?,
    };
    if let Some(unknown_class) = container_requests.find_unknown_classes(&sources).next() {
        let unreadable_class_files = sources
            .iter()
            .filter_map(|source| source.as_ref().err().cloned());
        return Err(PlannerError::UnknownClass {
            unknown_class,
            unreadable_class_files: unreadable_class_files.collect(),
        });
    }
    let (mut requests, mut class_file_errors) = (Vec::new(), Vec::new());
    let ignores_errors = |source: &Result<ClassSource, FileError>| {
        source
            .as_ref()
            .is_ok_and(|source| config.ignores_errors_of(source))
    };
    let mut variable_owners = NameOwners::default();
    let has_request_hook = container_requests.has_request_hook();
    let considers_attach_requests =
        is_request_considered(caller, RequestSourceKind::Attach, has_request_hook);
    for source in &sources {
        let class_file = class_file_path(source);
        let class_name = class_name_of_file(class_file);
        let has_cdi_grant = container_requests.has_cdi_grant(class_name);
        let source_kind = if has_cdi_grant {
            RequestSourceKind::Cdi
        } else {
            RequestSourceKind::Variable
        };
        let considers_own_request = is_request_considered(caller, source_kind, has_request_hook);
        let is_requested = considers_own_request
            || considers_attach_requests && container_requests.has_attach_request(class_name);
        let may_request_class = |source: &ClassSource| container_requests.may_request_class(source);
        if !is_requested
            || source
                .as_ref()
                .is_ok_and(|source| !may_request_class(source))
        {
            continue;
        }
        let class = source.as_ref().map_err(FileError::clone);
        let class = match class.and_then(|source| config.class(source)) {
            Ok(class) => Rc::new(class),
            Err(error)
                if container_requests.requests_class_of_file(class_file, &sources, config) =>
            {
                return Err(error.into());
            }
            Err(error) => {
                if !ignores_errors(source) {
                    class_file_errors.push(error);
                }
                continue;
            }
        };
        if considers_attach_requests {
            for (request, source) in container_requests.parse_attach_requests(&class)? {
                requests.push(ClassRequest {
                    class: Rc::clone(&class),
                    request,
                    source,
                });
            }
        }
        let own_request = considers_own_request
            .then(|| container_requests.find_container_request(&class))
            .transpose()?;
        let Some((request, source)) = own_request.flatten() else {
            continue;
        };
        if !has_cdi_grant {
            variable_owners.claim_request_variable(&class)?;
        }
        requests.push(ClassRequest {
            class,
            request,
            source,
        });
    }
    Ok(CollectedRequests {
        requests,
        class_file_errors,
    })
}

/// Returns a text with the errors of the class files that cannot be read. The caller appends the
/// text to an error message. The text names at most three files, and is empty if all can be read.
fn describe_unreadable_class_files(unreadable_class_files: &[FileError]) -> String {
    const MAX_SHOWN_FILES: usize = 3;
    if unreadable_class_files.is_empty() {
        return String::new();
    }
    let shown_errors: Vec<String> = unreadable_class_files
        .iter()
        .take(MAX_SHOWN_FILES)
        .map(FileError::to_string)
        .collect();
    let more_note = match unreadable_class_files.len() - shown_errors.len() {
        0 => String::new(),
        hidden_count => format!("; and {hidden_count} more"),
    };
    format!(
        "; class files that cannot be read: {}{more_note}",
        shown_errors.join("; ")
    )
}
