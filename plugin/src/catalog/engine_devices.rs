//! What an engine injects for a device, by the class's `[allocate]`.

use std::collections::BTreeSet;

use device_class::HostView;
use device_class::class::DeviceClass;
use device_class::discover::{self, Device, FoundNode, Presence};
use device_class::name::CapabilityName;
use device_class::name::CdiName;
use device_class::template::Attributes;

use kubelet_api::deviceplugin::DeviceSpec;

/// What the engine injects for one device without the hook.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EngineDevices {
    pub(crate) nodes: Vec<DeviceSpec>,
    /// Its names in the Container Device Interface.
    pub(crate) cdi: Vec<CdiName>,
}

impl EngineDevices {
    pub(super) fn of(device: &Device, class: &DeviceClass) -> Self {
        // Those that a container selects are not known at Allocate.
        let capabilities = class.spec.request.defaults();
        let nodes = device.nodes.iter().filter(|_| class.spec.allocate.devices);
        EngineDevices {
            nodes: nodes.filter_map(|node| spec(node, &capabilities)).collect(),
            cdi: device.cdi.clone(),
        }
    }
}

/// The nodes that the engine injects with any device of the class.
///
/// # Errors
/// One that is not optional is missing: no device of the class is usable.
pub(super) fn control_nodes(
    class: &DeviceClass,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<DeviceSpec>, String> {
    let capabilities = class.spec.request.defaults();
    let nodes = discover::control_nodes(class, &capabilities, attributes, host)
        .map_err(|error| error.to_string())?;
    if let Some(reason) = nodes.iter().find_map(|node| node.number.unfit()) {
        // The hook would refuse the container.
        return Err(reason.to_owned());
    }
    let by_engine = nodes.iter().filter(|_| class.spec.allocate.devices);
    Ok(by_engine
        .filter_map(|node| spec(node, &capabilities))
        .collect())
}

fn spec(node: &FoundNode, capabilities: &BTreeSet<CapabilityName>) -> Option<DeviceSpec> {
    let there = matches!(node.number, Presence::Found(_));
    (there && node.is_for(capabilities)).then(|| DeviceSpec {
        container_path: node.container.display().to_string(),
        host_path: node.host.display().to_string(),
        permissions: node.access.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use device_class::config::Config;
    use device_class::host::RecordedHost;

    use super::super::{Inventory, Memory, scan};
    use super::*;
    use crate::service::allocate::container;

    const CLASS: &str = r#"
        version = 1
        resource = "x.com/npu"
        request = { env = "X", capabilities_env = "XC", default_capabilities = ["video"] }
        discover = [{ path = "/dev/x{index:number}" }]
        edits = [{ nodes = ["/dev/xctl", { path = "/dev/xopt", optional = true }], capability = "video" }]
        [allocate]
        devices = true
        cdi = "x.com/npu={index}"
        [sharing]
        replicas = 2
        [device]
        id = "x-{index}"
        nodes = [
          { path = "/dev/x{index}", container_path = "/dev/npu{index}", access = "rwm" },
          { path = "/dev/x{index}", container_path = "/dev/debug{index}", capability = "debug" },
        ]
    "#;

    fn scanned(text: &str, host: &str) -> Inventory {
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let host = RecordedHost::parse(host).unwrap();
        scan(
            &[class],
            &Config::default(),
            &host,
            &mut Memory::new(),
            Instant::now(),
        )
        .inventory
    }

    #[test]
    fn nodes_and_cdi_names_are_returned_if_the_class_configures_it() {
        let host = "char /dev/x0 10:1\nchar /dev/x1 10:2\nchar /dev/xctl 10:3\n";
        let ids = ["x-1::1", "x-0::0", "x-1::0"].map(str::to_owned);
        let both = "annotations cdi.k8s.io/boathook_x.com_npu=x.com/npu=0,x.com/npu=1";
        let nodes =
            "/dev/npu0 from /dev/x0 rwm, /dev/npu1 from /dev/x1 rwm, /dev/xctl from /dev/xctl rw";
        for (without, wanted_nodes, wanted_cdi) in [
            ("", nodes, both),
            ("devices = true", "", both),
            ("cdi = \"x.com/npu={index}\"", nodes, ""),
        ] {
            let inventory = scanned(&CLASS.replace(without, ""), host);
            let answer = container(inventory.values().next().unwrap(), &ids).unwrap();
            let node = |node: &DeviceSpec| {
                let DeviceSpec {
                    container_path,
                    host_path,
                    permissions,
                } = node;
                format!("{container_path} from {host_path} {permissions}")
            };
            let nodes: Vec<String> = answer.devices.iter().map(node).collect();
            assert_eq!(nodes.join(", "), wanted_nodes, "without {without:?}");
            let cdi = answer
                .annotations
                .iter()
                .filter(|(key, _)| key.starts_with("cdi."));
            let cdi: Vec<String> = cdi.map(|(k, v)| format!("annotations {k}={v}")).collect();
            assert_eq!(cdi.join(" "), wanted_cdi, "without {without:?}");
            assert_eq!((answer.mounts.len(), answer.cdi_devices.len()), (0, 0));
        }
    }

    #[test]
    fn without_a_control_node_no_device_is_healthy() {
        let host = "char /dev/x0 10:1\n";
        let healthy = |text: &str| {
            let inventory = scanned(text, host);
            let resource = inventory.values().next().unwrap();
            resource.devices()[0].health.to_string()
        };
        assert_eq!(healthy(CLASS), "unhealthy: /dev/xctl does not exist");
        let by_hook = CLASS.replace("devices = true", "");
        assert_eq!(healthy(&by_hook), "unhealthy: /dev/xctl does not exist");
        let optional = by_hook.replace("\"/dev/xctl\", ", "");
        assert_eq!(healthy(&optional), "healthy");
    }
}
