//! Implements Allocate. The answer names the devices for the hook, by environment variables
//! and annotations, and has nothing else.

use std::collections::{BTreeSet, HashMap};

use device_class::discover::Health;
use device_class::name::{EnvName, excerpt};
use injection_plan::cdi::{self, SpecificationOwner};
use injection_plan::request::{ANNOTATION_PREFIX, MAX_REQUEST};
use kubelet_api::deviceplugin::ContainerAllocateResponse;
use tonic::Status;

use crate::catalog::{AdvertisedDevice, Resource};

/// The plugin's name in the keys of CDI annotations.
const CDI_PLUGIN: &str = "boathook";

/// Returns the devices with these ids, each once, in the order of the resource. The kubelet's
/// order is that of a hash table, and equal requests should get equal answers.
fn named<'a>(resource: &'a Resource, ids: &[String]) -> Result<Vec<&'a AdvertisedDevice>, Status> {
    let name = &resource.name;
    let mut positions = BTreeSet::new();
    for id in ids {
        let unknown = || {
            let id = excerpt(id);
            Status::not_found(format!("{name} has no device `{id}`; use the latest list"))
        };
        positions.insert(resource.position(id).ok_or_else(unknown)?);
    }
    if positions.is_empty() {
        // The kubelet never sends an empty list.
        return Err(Status::invalid_argument(format!(
            "{name}: empty device list"
        )));
    }
    Ok(positions
        .into_iter()
        .map(|position| &resource.devices()[position])
        .collect())
}

/// Returns the answers for all containers of one call.
pub(crate) fn containers_of_a_call(
    resource: &Resource,
    containers: &[&[String]],
) -> Result<Vec<ContainerAllocateResponse>, Status> {
    let answers = containers.iter().map(|ids| container(resource, ids));
    let mut answers: Vec<_> = answers.collect::<Result<_, _>>()?;
    if let Some(name) = &resource.terms.call_count_env {
        let count: usize = containers.iter().map(|ids| ids.len()).sum();
        for answer in &mut answers {
            answer.envs.insert(name.to_string(), count.to_string());
        }
    }
    Ok(answers)
}

pub(crate) fn container(
    resource: &Resource,
    ids: &[String],
) -> Result<ContainerAllocateResponse, Status> {
    let (name, terms) = (&resource.name, &resource.terms);
    if terms.count_only {
        return Err(Status::invalid_argument(format!(
            "{name} is the number of devices of the class {} and cannot be allocated; \
             request the class's other resource",
            terms.class
        )));
    }
    let devices = named(resource, ids)?;
    for device in &devices {
        if let Health::Unhealthy { reason } = &device.health {
            return Err(Status::failed_precondition(format!(
                "{} of {name} is unhealthy: {reason}; use a healthy one, or repair it",
                device.id
            )));
        }
    }
    let asked = devices.iter().filter(|device| device.share_of.is_some());
    let asked = asked.count();
    if let Some(most) = terms.max_per_container
        && asked > most.into()
    {
        return Err(Status::invalid_argument(format!(
            "{name}: {asked} shares requested for one container, which may have {most}: more \
             shares are not more of a device"
        )));
    }
    let mut hardware: Vec<&str> = devices.iter().map(|d| d.hardware().as_str()).collect();
    // In the order of the resource, the shares of a device are next to each other.
    hardware.dedup();
    if terms.one_device && hardware.len() > 1 {
        return Err(Status::invalid_argument(format!(
            "{name}: shares of {} devices requested for one container, which may have shares of \
             one device only",
            hardware.len()
        )));
    }
    let mut envs = environment(&devices);
    if let Some(count) = &terms.count_env {
        envs.insert(count.to_string(), devices.len().to_string());
    }
    // Programs of the vendor read the variable. They know devices and not shares.
    let by_cdi = terms.by_cdi.then(|| cdi_annotation(resource, &hardware));
    let hardware = hardware.join(",");
    let shares: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    let mut allocated = shares.join(",");
    // The hook refuses a longer text. It can read the shares from the kubelet checkpoint.
    if allocated.len() > MAX_REQUEST {
        allocated.clone_from(&hardware);
    }
    // A class may give the variable another value than the ids, which are then in the
    // annotation only.
    envs.entry(terms.request_env.to_string())
        .or_insert(hardware);
    let annotation = format!("{ANNOTATION_PREFIX}{}", terms.class);
    Ok(ContainerAllocateResponse {
        envs,
        annotations: HashMap::from_iter(by_cdi.into_iter().chain([(annotation, allocated)])),
        ..Default::default()
    })
}

/// Returns the annotation by which the engine uses the CDI specifications of the devices, and
/// with them the hook. Every engine with CDI reads the annotation. If `cdi_devices` were set
/// as well, some engines would call the hook twice. The key has the resource's name, because a
/// container may have several resources.
fn cdi_annotation(resource: &Resource, hardware: &[&str]) -> (String, String) {
    let name = &resource.name;
    let kind = SpecificationOwner::Plugin.kind(name);
    let names: Vec<String> = hardware.iter().map(|id| format!("{kind}={id}")).collect();
    let key = cdi::annotation_key(CDI_PLUGIN, name.as_str());
    (key, names.join(","))
}

/// Returns the environment variables of the devices. If several devices set a variable to
/// different values, the variable has all values, in the order of the devices.
fn environment(devices: &[&AdvertisedDevice]) -> HashMap<String, String> {
    let mut values: HashMap<&EnvName, Vec<&str>> = HashMap::new();
    for (name, value) in devices.iter().flat_map(|device| device.env.iter()) {
        let known = values.entry(name).or_default();
        if !known.contains(&value.as_str()) {
            known.push(value);
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
    use crate::catalog::fixture::{device, resource, sick};

    fn with_env(id: &str, env: &[(&str, &str)]) -> AdvertisedDevice {
        let entry = |&(name, value): &(&str, &str)| {
            let name = EnvName::try_from(name.to_owned()).unwrap();
            (name, value.to_owned())
        };
        AdvertisedDevice {
            env: Arc::new(env.iter().map(entry).collect()),
            ..device(id)
        }
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn sorted(map: HashMap<String, String>) -> String {
        let mut words: Vec<String> = map.iter().map(|(k, v)| format!("{k}={v}")).collect();
        words.sort();
        words.join(" ")
    }

    #[test]
    fn variables_of_several_devices_are_joined() {
        let devices = resource(vec![
            with_env("a", &[("QAT0", "a"), ("FIRMWARE", "2"), ("PORT", "1")]),
            with_env("b", &[("QAT1", "b"), ("FIRMWARE", "2"), ("PORT", "0")]),
        ]);
        let wanted = "DUMMY_VISIBLE_DEVICES=a,b FIRMWARE=2 PORT=1,0 QAT0=a QAT1=b";
        // Whatever their order, and however often they are named.
        for asked in [&["a", "b"][..], &["b", "a"], &["b", "a", "b"]] {
            let answer = container(&devices, &ids(asked)).unwrap();
            assert_eq!(sorted(answer.envs), wanted, "{asked:?}");
        }
    }

    /// As a class can set it that gives containers indices (`[device.env]`).
    #[test]
    fn a_class_may_give_the_request_variable_another_value_than_the_ids() {
        let devices = resource(vec![
            with_env("a", &[("DUMMY_VISIBLE_DEVICES", "0")]),
            with_env("b", &[("DUMMY_VISIBLE_DEVICES", "1")]),
        ]);
        let answer = container(&devices, &ids(&["b", "a"])).unwrap();
        assert_eq!(sorted(answer.envs), "DUMMY_VISIBLE_DEVICES=0,1");
        let annotation = "devices.boathook.dev/dummy-npu=a,b";
        assert_eq!(sorted(answer.annotations), annotation);
    }

    #[test]
    fn the_hook_accepts_an_allocation_of_any_number_of_shares() {
        let gpu = "GPU-8f0c7b8e-1c5f-4d1c-9a3e-0123456789ab";
        let share = |number: usize| AdvertisedDevice {
            share_of: Some(Arc::new(gpu.to_owned().try_into().unwrap())),
            ..device(&format!("{gpu}::{number}"))
        };
        let shared = resource((0..4096).map(share).collect());
        for (number, text) in [(1, format!("{gpu}::0")), (4096, gpu.to_owned())] {
            let asked = shared.devices()[..number].iter();
            let asked: Vec<String> = asked.map(|share| share.id.to_string()).collect();
            let answer = container(&shared, &asked).unwrap();
            assert_eq!(answer.envs["DUMMY_VISIBLE_DEVICES"], gpu);
            assert_eq!(answer.annotations["devices.boathook.dev/dummy-npu"], text);
        }
    }

    #[test]
    fn an_impossible_allocation_is_refused_with_its_reason() {
        let npus = resource(vec![device("npu-0"), sick("npu-1", "/dev/npu1 is missing")]);
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
            let status = container(&npus, &ids(asked)).unwrap_err();
            assert_eq!(status.code(), code, "{asked:?}");
            assert!(status.message().contains(said), "{status}");
            assert!(status.message().len() < 300, "{status}");
        }
    }
}
