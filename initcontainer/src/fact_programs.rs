//! Decides whether an installation enables `boathook-facts.timer`. The timer runs programs of
//! drivers that report properties of devices (`[[facts]]` in class files).

use std::path::Path;

use device_class::class::DeviceClass;
use device_class::discover;
use device_class::host::RealHost;
use runtime_config::Engine;

use crate::host::Host;
use crate::payload::Payload;
use crate::service::Service;
use crate::services::can_enable_service;

/// The directory in which the kubelet keeps the sockets of device plugins. A host without it has no
/// kubelet.
const KUBELET_PLUGINS_DIR: &str = "/var/lib/kubelet/device-plugins";

/// Returns whether an installation for `engines` enables the timer without the option `--facts`. It
/// does so for Docker or podman on a host without a kubelet, if the host has devices and a driver's
/// program that reports their properties. On a node of a cluster the plugin runs these programs. If
/// the timer cannot be enabled, for example without systemd, the result is false and no error,
/// because no option asked for it.
pub fn is_facts_timer_needed(
    host: &Host,
    payload: &Payload,
    engines: &[Engine],
    services: &[Service],
) -> bool {
    let has_docker_or_podman = engines
        .iter()
        .any(|engine| [Engine::Docker, Engine::Podman].contains(engine));
    if !has_docker_or_podman
        || services.contains(&Service::Plugin)
        || host.is_dir(Path::new(KUBELET_PLUGINS_DIR))
        || !can_enable_service(host, Service::Facts)
    {
        return false;
    }
    let Ok(view) = RealHost::open(host.as_path()) else {
        return false;
    };
    let has_program = |class: &DeviceClass| {
        let programs = class.spec.property_programs.iter();
        let templates = programs.filter_map(|program| program.command.first());
        let mut paths = templates.map(ToString::to_string);
        paths.any(|path| {
            let program = discover::find_host_program(class, Path::new(&path), &view);
            host.exists(&program.path)
        })
    };
    payload.parsed_classes().any(|class| {
        class.spec.is_enabled
            && has_program(class)
            && !discover::find_devices(class, &view).devices.is_empty()
    })
}
