//! Writes one CDI specification file for each claim. It has only device nodes and the hook, which
//! finds the libraries when a container starts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId};
use injection_plan::cdi::directory::{self, DirectoryError};
use injection_plan::cdi::{Description, DescriptionError, Specification, SpecifiedDevice};

use super::parameters::{ParameterError, Parameters};
use super::record::{ClaimUid, Record};
use super::store::{StoreError, remove_file};
use crate::class_devices::ClassDevices;
use crate::names::{DRIVER, dns_label};

/// The prefix of the file names. It differs from that of the device plugin, which removes the
/// files of its own earlier run.
const PREFIX: &str = "boathook.dev-claim-";

/// The maximum length of a CDI device's name.
const MAX_NAME: usize = 63;

/// The reason why a claim's specification cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    #[error("class {0} is not served here any more")]
    NoClass(ClassName),
    #[error("device {id} of class {class} is not on this node any more")]
    NoDevice { class: ClassName, id: DeviceId },
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("request {request} cannot be described")]
    Description {
        request: String,
        #[source]
        error: Box<DescriptionError>,
    },
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// The devices of a claim, grouped by request and class. Each group is one CDI device, because
/// several CDI devices would overwrite each other's environment variables.
type Groups<'a> = BTreeMap<(&'a str, &'a ClassName), (&'a Parameters, Vec<&'a DeviceId>)>;

fn group_devices(record: &Record) -> Groups<'_> {
    let mut groups = Groups::new();
    for device in &record.devices {
        let key = (device.request.as_str(), &device.class);
        // All devices of a request have the same parameters.
        let group = groups.entry(key);
        let (_, ids) = group.or_insert_with(|| (&device.parameters, Vec::new()));
        if !ids.contains(&&device.id) {
            ids.push(&device.id);
        }
    }
    groups
}

/// Names the CDI device of each group of a claim.
pub(super) fn cdi_device_names(record: &Record) -> BTreeMap<(&str, &ClassName), String> {
    let groups = group_devices(record).into_keys().enumerate();
    let name = |(number, key): (usize, (&str, &ClassName))| {
        // The pod's status shows this name.
        let mut name = format!("{}-{number}-{}", record.uid.as_str(), dns_label(key.0));
        name.truncate(MAX_NAME);
        name
    };
    groups
        .map(|group| {
            (
                group.1,
                format!("{DRIVER}/claim={}", name(group).trim_end_matches('-')),
            )
        })
        .collect()
}

/// Writes the CDI specification of a claim, if it has changed.
pub(super) fn write(
    cdi: &Path,
    description: Description<'_>,
    record: &Record,
    inventory: &[ClassDevices],
) -> Result<(), SpecificationError> {
    let names = cdi_device_names(record);
    let mut devices = Vec::new();
    for ((request, class), (parameters, ids)) in group_devices(record) {
        let class_devices = inventory
            .iter()
            .find(|devices| devices.class.name == *class)
            .ok_or_else(|| SpecificationError::NoClass(class.clone()))?;
        let find = |id: &&DeviceId| {
            let device = class_devices.find_by_id(id);
            device.ok_or_else(|| SpecificationError::NoDevice {
                class: class.clone(),
                id: (**id).clone(),
            })
        };
        let claimed: Vec<&Device> = ids.iter().map(find).collect::<Result<_, _>>()?;
        let claim = record.uid.as_str();
        let variables = parameters.variables(&class_devices.class)?;
        let edits = description.describe_claim(
            &class_devices.class,
            &class_devices.found,
            &claimed,
            claim,
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
    let path = specification_path(cdi, &record.uid);
    if devices.is_empty() {
        return Ok(());
    }
    let specification = Specification::new(format!("{DRIVER}/claim"), devices);
    directory::write_if_changed(cdi, &path, &specification)?;
    Ok(())
}

/// Removes the CDI specification of a claim, if it exists.
pub(super) fn remove(cdi: &Path, uid: &ClaimUid) -> Result<(), StoreError> {
    remove_file(&specification_path(cdi, uid))
}

/// Returns the uids of the claims that have a CDI specification.
pub(super) fn claims_with_files(cdi: &Path) -> Vec<ClaimUid> {
    let entries = fs::read_dir(cdi).into_iter().flatten().flatten();
    let uids = entries.filter_map(|entry| {
        let name = entry.file_name();
        let uid = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(".json")?;
        ClaimUid::try_from(uid.to_owned()).ok()
    });
    uids.collect()
}

fn specification_path(cdi: &Path, uid: &ClaimUid) -> PathBuf {
    cdi.join(format!("{PREFIX}{}.json", uid.as_str()))
}
