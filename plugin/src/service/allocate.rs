//! Implements the Allocate call. The answer only names the devices: its environment variables and
//! annotations tell the hook and the engine which devices to inject.

use std::collections::{BTreeSet, HashMap};

use daemon::kubelet_api::deviceplugin::ContainerAllocateResponse;
use device_class::discover::Health;
use device_class::name::{EnvName, excerpt};
use injection_plan::cdi::{self, SpecificationOwner};
use injection_plan::request::{ANNOTATION_PREFIX, MAX_REQUEST_BYTES};
use tonic::Status;

use crate::catalog::{AdvertisedDevice, Resource};

/// The name of the device plugin in the keys of CDI annotations, which have the form
/// `cdi.k8s.io/PLUGIN_ALLOCATION`.
const CDI_PLUGIN_ID: &str = "boathook";

/// Returns the devices with these ids, without duplicates and in the order of the resource. The
/// kubelet sends ids in the random order of a hash table, but equal requests should get equal
/// answers.
fn find_devices<'a>(
    resource: &'a Resource,
    ids: &[String],
) -> Result<Vec<&'a AdvertisedDevice>, Status> {
    let name = &resource.name;
    let mut positions = BTreeSet::new();
    for id in ids {
        let unknown_device = || {
            let id = excerpt(id);
            Status::not_found(format!("{name} has no device `{id}`; use the latest list"))
        };
        positions.insert(resource.find_position(id).ok_or_else(unknown_device)?);
    }
    if positions.is_empty() {
        // The kubelet never sends an empty list, so an empty list is an error.
        return Err(Status::invalid_argument(format!(
            "{name}: empty device list"
        )));
    }
    Ok(positions
        .into_iter()
        .map(|position| &resource.devices()[position])
        .collect())
}

/// Builds one answer for each container of an Allocate call. Each entry of `containers` has the
/// device ids that are requested for one container.
pub(crate) fn build_allocate_responses(
    resource: &Resource,
    containers: &[&[String]],
) -> Result<Vec<ContainerAllocateResponse>, Status> {
    let answers = containers
        .iter()
        .map(|ids| build_container_response(resource, ids));
    let mut answers: Vec<_> = answers.collect::<Result<_, _>>()?;
    if let Some(name) = &resource.properties.call_shares_env {
        let count: usize = containers.iter().map(|ids| ids.len()).sum();
        for answer in &mut answers {
            answer.envs.insert(name.to_string(), count.to_string());
        }
    }
    Ok(answers)
}

/// Builds the answer for one container. Refuses the allocation if a device is unknown or unhealthy,
/// or if the class does not permit so many shares or devices.
pub(crate) fn build_container_response(
    resource: &Resource,
    ids: &[String],
) -> Result<ContainerAllocateResponse, Status> {
    let (name, properties) = (&resource.name, &resource.properties);
    if properties.is_count_only {
        return Err(Status::invalid_argument(format!(
            "{name} is the number of devices of the class {} and cannot be allocated; \
             request the class's other resource",
            properties.class
        )));
    }
    let devices = find_devices(resource, ids)?;
    for device in &devices {
        if let Health::Unhealthy { reason } = &device.health {
            return Err(Status::failed_precondition(format!(
                "{} of {name} is unhealthy: {reason}; use a healthy one, or repair it",
                device.id
            )));
        }
    }
    let shares = devices
        .iter()
        .filter(|device| device.shared_device_id.is_some());
    let share_count = shares.count();
    if let Some(max_shares) = properties.max_shares_per_container
        && share_count > max_shares.into()
    {
        return Err(Status::invalid_argument(format!(
            "{name}: {share_count} shares requested for one container, which may have {max_shares}: more \
             shares are not more of a device"
        )));
    }
    let mut hardware_ids: Vec<&str> = devices
        .iter()
        .map(|device| device.physical_device_id().as_str())
        .collect();
    // It suffices to remove adjacent duplicates, because the resource lists the shares of a device
    // next to each other.
    hardware_ids.dedup();
    if properties.requires_one_device && hardware_ids.len() > 1 {
        return Err(Status::invalid_argument(format!(
            "{name}: shares of {} devices requested for one container, which may have shares of \
             one device only",
            hardware_ids.len()
        )));
    }
    let mut envs = join_variables(&devices);
    if let Some(variable) = &properties.container_shares_env {
        envs.insert(variable.to_string(), devices.len().to_string());
    }
    let cdi_annotation = properties
        .uses_cdi
        .then(|| build_cdi_annotation(resource, &hardware_ids));
    // The request variable contains the ids of devices, not of shares, because programs of the
    // vendor read the variable and do not know shares.
    let request_value = hardware_ids.join(",");
    let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    let mut annotation_value = ids.join(",");
    // If the share ids are too long, the annotation has device ids, because the hook refuses a
    // longer request. In that case the hook reads the shares from the kubelet checkpoint.
    if annotation_value.len() > MAX_REQUEST_BYTES {
        annotation_value.clone_from(&request_value);
    }
    // A class may give devices an environment variable with the name of the request variable. That
    // value is kept, and only the annotation contains the ids.
    envs.entry(properties.request_env.to_string())
        .or_insert(request_value);
    let annotation_key = format!("{ANNOTATION_PREFIX}{}", properties.class);
    Ok(ContainerAllocateResponse {
        envs,
        annotations: HashMap::from_iter(
            cdi_annotation
                .into_iter()
                .chain([(annotation_key, annotation_value)]),
        ),
        ..Default::default()
    })
}

/// Builds the key and the value of the CDI annotation, which makes the engine apply the devices'
/// CDI specifications and call the hook. Every engine with CDI reads this annotation. The answer's
/// field `cdi_devices` stays empty, because some engines would call the hook twice if the answer
/// had both. The key contains the resource name, because a container may have several resources.
fn build_cdi_annotation(resource: &Resource, hardware_ids: &[&str]) -> (String, String) {
    let name = &resource.name;
    let kind = SpecificationOwner::Plugin.kind(name);
    let names: Vec<String> = hardware_ids
        .iter()
        .map(|id| format!("{kind}={id}"))
        .collect();
    let key = cdi::make_annotation_key(CDI_PLUGIN_ID, name.as_str());
    (key, names.join(","))
}

/// Combines the environment variables of the devices. If the devices have different values for a
/// variable, the variable gets all of them, separated by commas in the order of the devices.
fn join_variables(devices: &[&AdvertisedDevice]) -> HashMap<String, String> {
    let mut values: HashMap<&EnvName, Vec<&str>> = HashMap::new();
    for (name, value) in devices.iter().flat_map(|device| device.env.iter()) {
        let variable_values = values.entry(name).or_default();
        if !variable_values.contains(&value.as_str()) {
            variable_values.push(value);
        }
    }
    values
        .into_iter()
        .map(|(name, values)| (name.to_string(), values.join(",")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tonic::Code;

    use super::*;
    use crate::catalog::fixture::{device, resource, unhealthy_device};

    fn device_with_env(id: &str, env: &[(&str, &str)]) -> AdvertisedDevice {
        let entry = |&(name, value): &(&str, &str)| {
            let name = EnvName::try_from(name.to_owned()).unwrap();
            (name, value.to_owned())
        };
        AdvertisedDevice {
            env: Arc::new(env.iter().map(entry).collect()),
            ..device(id)
        }
    }

    fn to_ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn join_sorted(map: HashMap<String, String>) -> String {
        let mut words: Vec<String> = map.iter().map(|(k, v)| format!("{k}={v}")).collect();
        words.sort();
        words.join(" ")
    }

    #[test]
    fn variables_of_several_devices_are_joined() {
        let devices = resource(vec![
            device_with_env("a", &[("QAT0", "a"), ("FIRMWARE", "2"), ("PORT", "1")]),
            device_with_env("b", &[("QAT1", "b"), ("FIRMWARE", "2"), ("PORT", "0")]),
        ]);
        let wanted = "DUMMY_VISIBLE_DEVICES=a,b FIRMWARE=2 PORT=1,0 QAT0=a QAT1=b";
        // Whatever their order, and however often they are named.
        for asked in [&["a", "b"][..], &["b", "a"], &["b", "a", "b"]] {
            let answer = build_container_response(&devices, &to_ids(asked)).unwrap();
            assert_eq!(join_sorted(answer.envs), wanted, "{asked:?}");
        }
    }

    /// As a class can set it that gives containers indices (`[device.env]`).
    #[test]
    fn a_class_may_give_the_request_variable_another_value_than_the_ids() {
        let devices = resource(vec![
            device_with_env("a", &[("DUMMY_VISIBLE_DEVICES", "0")]),
            device_with_env("b", &[("DUMMY_VISIBLE_DEVICES", "1")]),
        ]);
        let answer = build_container_response(&devices, &to_ids(&["b", "a"])).unwrap();
        assert_eq!(join_sorted(answer.envs), "DUMMY_VISIBLE_DEVICES=0,1");
        let annotation = "devices.boathook.dev/dummy-npu=a,b";
        assert_eq!(join_sorted(answer.annotations), annotation);
    }

    #[test]
    fn the_hook_accepts_an_allocation_of_any_number_of_shares() {
        let gpu = "GPU-8f0c7b8e-1c5f-4d1c-9a3e-0123456789ab";
        let share = |number: usize| AdvertisedDevice {
            shared_device_id: Some(Arc::new(gpu.to_owned().try_into().unwrap())),
            ..device(&format!("{gpu}::{number}"))
        };
        let shared = resource((0..4096).map(share).collect());
        for (number, text) in [(1, format!("{gpu}::0")), (4096, gpu.to_owned())] {
            let asked = shared.devices()[..number].iter();
            let asked: Vec<String> = asked.map(|share| share.id.to_string()).collect();
            let answer = build_container_response(&shared, &asked).unwrap();
            assert_eq!(answer.envs["DUMMY_VISIBLE_DEVICES"], gpu);
            assert_eq!(answer.annotations["devices.boathook.dev/dummy-npu"], text);
        }
    }

    #[test]
    fn an_impossible_allocation_is_refused_with_its_reason() {
        let npus = resource(vec![
            device("npu-0"),
            unhealthy_device("npu-1", "/dev/npu1 is missing"),
        ]);
        let long = "x".repeat(10_000);
        let unknown = "dummy.com/npu has no device `npu-2`";
        let ill = "npu-1 of dummy.com/npu is unhealthy: /dev/npu1 is missing";
        for (asked, code, said) in [
            (&["npu-2"][..], Code::NotFound, unknown),
            (&["npu-0", ""], Code::NotFound, "no device ``"),
            (&["../x\n"], Code::NotFound, "no device `../x\\n`"),
            (&[&long], Code::NotFound, "xxx…`"),
            (&["npu-0", "npu-1"], Code::FailedPrecondition, ill),
            (&[], Code::InvalidArgument, "empty device list"),
        ] {
            let status = build_container_response(&npus, &to_ids(asked)).unwrap_err();
            assert_eq!(status.code(), code, "{asked:?}");
            assert!(status.message().contains(said), "{status}");
            assert!(status.message().len() < 300, "{status}");
        }
    }
}
