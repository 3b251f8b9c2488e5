//! Writes one CDI specification file for each claim. The specification contains only device nodes
//! and the hook. The hook finds the libraries when a container starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId};
use injection_plan::cdi::directory::{self, DirectoryError};
use injection_plan::cdi::{CdiDeviceError, Specification, SpecificationForm, SpecifiedDevice};

use super::parameters::{ParameterError, Parameters};
use super::record::{ClaimUid, Record};
use super::store::{StoreError, remove_file};
use crate::class_devices::ClassDevices;
use crate::names::{DRIVER, to_dns_label};

/// The prefix of the names of the specification files of claims. It differs from the prefix of the
/// device plugin's files, because the plugin removes obsolete files with its own prefix.
const SPECIFICATION_FILE_PREFIX: &str = "boathook.dev-claim-";

/// The maximum length of the name of a CDI device, in bytes. A longer name is cut.
const MAX_DEVICE_NAME_BYTES: usize = 63;

/// The reason why the CDI specification of a claim cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    #[error("class {0} is not served here any more")]
    UnknownClass(ClassName),
    #[error("device {id} of class {class} is not on this node any more")]
    MissingDevice { class: ClassName, id: DeviceId },
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("request {request} cannot be described")]
    Description {
        request: String,
        #[source]
        error: Box<CdiDeviceError>,
    },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// The devices of a claim, grouped by request and class. One group becomes one CDI device. If each
/// device were a CDI device, their environment variables would overwrite each other.
type DeviceGroups<'a> = BTreeMap<(&'a str, &'a ClassName), (&'a Parameters, Vec<&'a DeviceId>)>;

fn group_devices(record: &Record) -> DeviceGroups<'_> {
    let mut groups = DeviceGroups::new();
    for device in &record.devices {
        let key = (device.request.as_str(), &device.class);
        // The parameters of the first device are used, because all devices of a request have the
        // same parameters.
        let entry = groups.entry(key);
        let (_, ids) = entry.or_insert_with(|| (&device.parameters, Vec::new()));
        if !ids.contains(&&device.id) {
            ids.push(&device.id);
        }
    }
    groups
}

/// Returns the qualified names of a claim's CDI devices, such as `boathook.dev/claim=UID-0-gpu`.
/// The key of a name is the request and the class of its devices.
pub(super) fn build_cdi_device_names(record: &Record) -> BTreeMap<(&str, &ClassName), String> {
    let groups = group_devices(record).into_keys().enumerate();
    let build_name = |(number, key): (usize, (&str, &ClassName))| {
        // The name contains the request, because users see the name in the status of the pod.
        let mut name = format!("{}-{number}-{}", record.uid.as_str(), to_dns_label(key.0));
        name.truncate(MAX_DEVICE_NAME_BYTES);
        name
    };
    groups
        .map(|group| {
            (
                group.1,
                format!("{DRIVER}/claim={}", build_name(group).trim_end_matches('-')),
            )
        })
        .collect()
}

/// Writes the CDI specification of a claim to its file, if the content has changed.
pub(super) fn write_specification(
    cdi_directory: &Path,
    specification_form: SpecificationForm<'_>,
    record: &Record,
    inventory: &[ClassDevices],
) -> Result<(), SpecificationError> {
    let names = build_cdi_device_names(record);
    let mut devices = Vec::new();
    for ((request, class), (parameters, ids)) in group_devices(record) {
        let class_devices = inventory
            .iter()
            .find(|devices| devices.class.name == *class)
            .ok_or_else(|| SpecificationError::UnknownClass(class.clone()))?;
        let find_device = |id: &&DeviceId| {
            let device = class_devices.find_by_id(id);
            device.ok_or_else(|| SpecificationError::MissingDevice {
                class: class.clone(),
                id: (**id).clone(),
            })
        };
        let claimed_devices: Vec<&Device> =
            ids.iter().map(find_device).collect::<Result<_, _>>()?;
        let claim_uid = record.uid.as_str();
        let variables = parameters.to_variables(&class_devices.class)?;
        let edits = specification_form.build_claim_edits(
            &class_devices.class,
            &class_devices.found_class,
            &claimed_devices,
            claim_uid,
            &variables,
        );
        let container_edits = edits.map_err(|error| SpecificationError::Description {
            request: request.to_owned(),
            error: Box::new(error),
        })?;
        let name = &names[&(request, class)];
        let name = name.split_once('=').map_or("", |(_, name)| name).to_owned();
        devices.push(SpecifiedDevice {
            name,
            container_edits,
        });
    }
    let path = specification_path(cdi_directory, &record.uid);
    if devices.is_empty() {
        return Ok(());
    }
    let specification = Specification::new(format!("{DRIVER}/claim"), devices);
    directory::write_if_changed(cdi_directory, &path, &specification)?;
    Ok(())
}

pub(super) fn remove_specification(cdi_directory: &Path, uid: &ClaimUid) -> Result<(), StoreError> {
    remove_file(&specification_path(cdi_directory, uid))
}

/// Returns the uids of the claims that have a specification file in `cdi_directory`.
pub(super) fn list_claims_with_files(cdi_directory: &Path) -> Vec<ClaimUid> {
    let entries = fs::read_dir(cdi_directory).into_iter().flatten().flatten();
    let uids = entries.filter_map(|entry| {
        let name = entry.file_name();
        let uid = name
            .to_str()?
            .strip_prefix(SPECIFICATION_FILE_PREFIX)?
            .strip_suffix(".json")?;
        ClaimUid::try_from(uid.to_owned()).ok()
    });
    uids.collect()
}

fn specification_path(cdi_directory: &Path, uid: &ClaimUid) -> PathBuf {
    cdi_directory.join(format!("{SPECIFICATION_FILE_PREFIX}{}.json", uid.as_str()))
}
