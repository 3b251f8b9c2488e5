//! Who holds a device, by the kubelet's record and ours of what was attached.

use device_class::inserted;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use device_class::config::Config;
use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId, excerpt};
use injection_plan::record::Record;
use serde::Serialize;

use super::containers::SHORT_ID;
use crate::live;

/// The kubelet's directory of logs: a directory NAMESPACE_NAME_UID for each pod
/// (Kubernetes, pkg/kubelet/kuberuntime, `BuildPodLogsDirectory`).
const POD_LOGS: &str = "var/log/pods";

/// The most pods whose names are read.
const MAX_PODS: usize = 4096;

/// A container that was allocated a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Holder {
    /// The id under which it was allocated: that of a share, if the device is shared.
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    container: String,
    /// The pod's `namespace/name`, if the node has its logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
}

impl Holder {
    pub(super) fn text(&self) -> String {
        match self.pod.as_ref().or(self.pod_uid.as_ref()) {
            Some(pod) => format!("{pod}/{}", self.container),
            None => self.container.chars().take(SHORT_ID).collect(),
        }
    }
}

/// Who holds the devices of a node.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// By resource and device.
    allocated: BTreeMap<(String, String), Vec<Holder>>,
    /// By class and device.
    attached: BTreeMap<(String, String), Vec<Holder>>,
}

impl Holders {
    /// Reads the kubelet's record, and ours of containers that run. `None`: there is
    /// neither. One that cannot be used is reported.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let path = &config.trust.kubelet_checkpoint;
        let attached = attached(&config.host_root);
        let mut holders = Holders {
            attached,
            ..Holders::default()
        };
        match Record::read(path) {
            Ok(record) => {
                holders.allocated = allocated(&record, &config.host_root);
                return Some(holders);
            }
            Err(error) if error.is_absent() => {}
            Err(error) => crate::log::warning(&format!(
                "holders are not shown: the kubelet's record of allocated devices, {}, cannot be \
                 used: {}",
                path.display(),
                crate::log::chain(&error)
            )),
        }
        (!holders.attached.is_empty()).then_some(holders)
    }

    /// The holders of a device of a class and of its shares.
    pub(super) fn holders_of(&self, class: &ClassName, device: &Device) -> Vec<Holder> {
        let ids: Vec<DeviceId> = device.offered_ids();
        let of = |id: &DeviceId| {
            let key = (device.resource.to_string(), id.to_string());
            self.allocated.get(&key).into_iter().flatten()
        };
        let key = (class.to_string(), device.id.to_string());
        let attached = self.attached.get(&key).into_iter().flatten();
        ids.iter().flat_map(of).chain(attached).cloned().collect()
    }
}

/// Who was attached devices while it ran.
fn attached(host_root: &Path) -> BTreeMap<(String, String), Vec<Holder>> {
    let mut holders: BTreeMap<_, Vec<Holder>> = BTreeMap::new();
    for record in live::all_records(host_root) {
        for device in record.devices {
            let key = (device.class, device.device.clone());
            holders.entry(key).or_default().push(Holder {
                device: device.device,
                pod_uid: None,
                container: record.id.clone(),
                pod: None,
            });
        }
    }
    holders
}

/// Who was allocated devices by the kubelet.
fn allocated(record: &Record, host_root: &Path) -> BTreeMap<(String, String), Vec<Holder>> {
    let pods = pod_names(&host_root.join(POD_LOGS));
    let mut holders: BTreeMap<_, Vec<Holder>> = BTreeMap::new();
    for allocation in record.allocations() {
        for device in allocation.devices {
            let key = (allocation.resource.to_owned(), device.to_owned());
            holders.entry(key).or_default().push(Holder {
                device: excerpt(device),
                pod_uid: Some(excerpt(allocation.pod_uid)),
                container: excerpt(allocation.container),
                pod: pods.get(allocation.pod_uid).cloned(),
            });
        }
    }
    holders
}

/// The pods that the node has logs of, by uid.
fn pod_names(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.take(MAX_PODS).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let mut parts = name.split('_');
        let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let pod = excerpt(&format!("{namespace}/{pod}"));
        parts.next().is_none().then(|| (uid.to_owned(), pod))
    });
    inserted(names)
}
