//! Which containers get the hook, and which device rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::host::{Entry, HostView, RealHost};
use device_class::load;
use device_class::request::{ANNOTATION_PREFIX, Environment, Request};
use device_class::strict_toml::FileError;
use nri_api::{
    Container, ContainerAdjustment, Hook, Hooks, LinuxContainerAdjustment, LinuxDeviceCgroup,
    LinuxResources, OptionalInt, PodSandbox,
};
use runtime_config::{HOOK_ENV, HOOK_TIMEOUT};
use tokio::sync::watch;

use super::engine::{Engine, Family};
use crate::catalog::{Inventory, NodeRule};

/// The hook's file name, by which an entry of Boathook is recognised: one of another
/// instance, or of hooks.d.
const FILE_NAME: &str = "boathook";

/// The label in which the kubelet keeps a container's name.
const CONTAINER_LABEL: &str = "io.kubernetes.container.name";

/// In CRI-O a container's annotations include those of the pod, which the pod's
/// author writes. This annotation has only the container's own, as JSON.
const CRIO_ANNOTATIONS: &str = "io.kubernetes.cri-o.Annotations";

/// Why the adjustment of a container cannot be determined.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdjustError {
    /// The class files cannot be read.
    #[error(transparent)]
    Classes(#[from] FileError),
    /// The engine's annotation is not of the known form.
    #[error("the engine's annotation {CRIO_ANNOTATIONS} is malformed: {0}")]
    Annotations(#[from] serde_json::Error),
    /// The engine does not name the pod or the container.
    #[error("the engine does not name the {0}")]
    Unnamed(&'static str),
}

/// Determines adjustments by the class files, the configuration and the last device scan.
#[derive(Debug)]
pub(super) struct Adjuster {
    config: Config,
    hook: PathBuf,
    devices: watch::Receiver<Inventory>,
}

/// The adjustment of a container.
#[derive(Debug)]
pub(super) struct Adjustment {
    hook: Hook,
    rules: Vec<LinuxDeviceCgroup>,
}

impl From<Adjustment> for ContainerAdjustment {
    fn from(Adjustment { hook, rules }: Adjustment) -> Self {
        let linux = LinuxContainerAdjustment {
            resources: Some(LinuxResources {
                devices: rules.clone(),
            }),
        };
        ContainerAdjustment {
            hooks: Some(Hooks {
                prestart: vec![hook],
                create_runtime: Vec::new(),
            }),
            linux: (!rules.is_empty()).then_some(linux),
            ..ContainerAdjustment::default()
        }
    }
}

type Annotations = BTreeMap<String, String>;

impl Adjuster {
    pub(super) fn new(config: Config, hook: PathBuf, devices: watch::Receiver<Inventory>) -> Self {
        Adjuster {
            config,
            hook,
            devices,
        }
    }

    /// Whether the container is entitled to devices: by an allocation, or because its
    /// pod may take them. Reads no file.
    pub(super) fn is_promised(
        &self,
        family: Family,
        pod: &PodSandbox,
        container: &Container,
    ) -> bool {
        // What cannot be read may be a promise.
        allocated(family, container).map_or(true, |allocated| !allocated.is_empty())
            || self.trusts(pod)
    }

    /// The hook, for a container that requests devices and does not have the hook yet,
    /// and the rules of the devices that were allocated to it, if the engine keeps
    /// them: in the spec they last as long as the container.
    pub(super) fn adjustment(
        &self,
        engine: Engine,
        pod: &PodSandbox,
        container: &Container,
    ) -> Result<Option<Adjustment>, AdjustError> {
        if self.is_in(container.hooks.as_ref()) {
            return Ok(None);
        }
        let allocated = allocated(engine.family, container)?;
        if allocated.is_empty() && !self.asks(container)? {
            return Ok(None);
        }
        let rules = match engine.has_0_10 {
            true => self.rules(&allocated),
            false => Vec::new(),
        };
        let hook = self.entry(pod, container, &allocated)?;
        Ok(Some(Adjustment { hook, rules }))
    }

    /// The rules of allocated devices. The hook adds what is missing here, and refuses
    /// the container if the kubelet has not recorded the allocation.
    fn rules(&self, allocated: &Annotations) -> Vec<LinuxDeviceCgroup> {
        let Ok(host) = RealHost::open(&self.config.host_root) else {
            return Vec::new();
        };
        let devices = self.devices.borrow();
        let mut rules = Vec::new();
        for (key, ids) in allocated {
            let class = key.strip_prefix(ANNOTATION_PREFIX).unwrap_or_default();
            let of_class: Vec<_> = devices
                .values()
                .filter(|resource| resource.terms.class.as_str() == class)
                .collect();
            for id in ids.split(',') {
                let mut found = of_class.iter().filter_map(|resource| {
                    let device = &resource.devices()[resource.position(id)?];
                    Some(
                        device
                            .engine
                            .rules
                            .iter()
                            .chain(&resource.terms.control_nodes.rules),
                    )
                });
                rules.extend(found.next().into_iter().flatten().cloned());
            }
        }
        drop(devices);
        let mut written: Vec<LinuxDeviceCgroup> = Vec::new();
        for rule in rules.iter().filter(|rule| is_current(rule, &host)) {
            let rule = device_cgroup(rule);
            if !written.contains(&rule) {
                written.push(rule);
            }
        }
        written
    }

    /// Whether the hook is among these.
    pub(super) fn is_in(&self, hooks: Option<&Hooks>) -> bool {
        let mut hooks = hooks
            .into_iter()
            .flat_map(|hooks| hooks.prestart.iter().chain(&hooks.create_runtime));
        hooks.any(|hook| {
            let path = Path::new(&hook.path);
            let is_ours = path == self.hook || path.ends_with(FILE_NAME);
            // A hook of a CDI specification reads no variable and no annotation.
            is_ours && !hook.args.iter().any(|arg| arg == "--cdi")
        })
    }

    /// Whether the container's own environment requests devices of any class.
    fn asks(&self, container: &Container) -> Result<bool, AdjustError> {
        let env = Environment::from(container.env.clone());
        for source in load::each_source(&self.config.classes)? {
            // What a class that cannot be read is for is not known.
            let Ok(source) = source else { continue };
            if !source.mentions(|name| env.get(name).is_some()) {
                continue;
            }
            // The hook reports what is wrong with a class or a request.
            let asked = match self.config.class(&source) {
                Ok(class) => !matches!(Request::of(&class, &env, |_| None), Ok(None)),
                Err(_) => true,
            };
            if asked {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn trusts(&self, pod: &PodSandbox) -> bool {
        let by_class = self.config.class.values();
        let mut patterns = by_class
            .flat_map(|class| &class.trusted_pods)
            .chain(&self.config.trust.trusted_pods);
        patterns.any(|pattern| pattern.fits(&pod.namespace, &pod.name))
    }

    /// The hook's entry. Its arguments name the pod and the container: only root can
    /// write them.
    fn entry(
        &self,
        pod: &PodSandbox,
        container: &Container,
        allocated: &Annotations,
    ) -> Result<Hook, AdjustError> {
        let label = container.labels.get(CONTAINER_LABEL);
        let name = Some(&container.name).filter(|name| !name.is_empty());
        let mut args = vec![FILE_NAME.to_owned(), "prestart".to_owned()];
        for (option, what, value) in [
            ("--pod-uid", "pod's uid", Some(&pod.uid)),
            ("--pod-namespace", "pod's namespace", Some(&pod.namespace)),
            ("--pod-name", "pod", Some(&pod.name)),
            ("--container", "container", name.or(label)),
        ] {
            let value = value.filter(|value| !value.is_empty());
            let value = value.ok_or(AdjustError::Unnamed(what))?;
            args.push(format!("{option}={value}"));
        }
        let annotations = allocated.iter();
        args.extend(annotations.map(|(key, value)| format!("--annotation={key}={value}")));
        Ok(Hook {
            path: self.hook.to_string_lossy().into_owned(),
            args,
            env: vec![HOOK_ENV.to_owned()],
            timeout: Some(OptionalInt {
                value: HOOK_TIMEOUT.into(),
            }),
        })
    }
}

/// Whether the node is still that of the device found by the last scan.
fn is_current(NodeRule { node, rule }: &NodeRule, host: &RealHost) -> bool {
    let there = host.entry(node).ok().flatten();
    there.is_some_and(|there| there == Entry::Device(rule.number))
}

fn device_cgroup(NodeRule { rule, .. }: &NodeRule) -> LinuxDeviceCgroup {
    let number = |value: u32| {
        Some(OptionalInt {
            value: value.into(),
        })
    };
    LinuxDeviceCgroup {
        allow: true,
        r#type: rule.number.kind.to_string(),
        major: number(rule.number.major),
        minor: number(rule.number.minor),
        access: rule.access.to_string(),
    }
}

/// The annotations of the plugin's allocations, which the kubelet gave the
/// container.
pub(super) fn allocated(family: Family, container: &Container) -> Result<Annotations, AdjustError> {
    let mut annotations = match family {
        Family::Containerd => container.annotations.clone(),
        Family::CriO => match container.annotations.get(CRIO_ANNOTATIONS) {
            None => Annotations::new(),
            // `null` is none.
            Some(json) => serde_json::from_str::<Option<Annotations>>(json)?.unwrap_or_default(),
        },
    };
    annotations.retain(|key, _| key.starts_with(ANNOTATION_PREFIX));
    Ok(annotations)
}
