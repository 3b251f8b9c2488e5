//! A host with devices, and what a recorded container gets on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::{ClassConfig, Config, Trust};
use device_class::name::ClassName;
use hook::oci::{Bundle, CdiGrant};
use hook::planner::{Caller, plan_container_injection};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const CONTAINERD: &str = "containerd-2.4-kubelet-1.36";
pub(crate) const CRIO: &str = "cri-o-kubelet-1.36";

/// What the kubelet recorded for the container `c`, and what else there is.
pub(crate) const FIRST: &str = "730234afea5d8fabafcbfecab66baa5f38aa59b4";
pub(crate) const OTHER: &str = "159872632b95a2060ad1dcc340488e319afe10fd";

/// A host with four devices of the class that the recorded pod requested.
pub(crate) struct Host {
    pub(crate) root: TempDir,
    recording: &'static str,
    pub(crate) trust: Trust,
    pub(crate) class: BTreeMap<ClassName, ClassConfig>,
}

impl Host {
    pub(crate) fn new(recording: &'static str) -> Self {
        let root = tempfile::tempdir().unwrap();
        for id in [
            OTHER,
            "357cd2fd5d8ade0713b27cce3cc5938ad67639db",
            FIRST,
            "008dc4f550c3ed383ef531151def4573848cd9d0",
        ] {
            fs::create_dir_all(root.path().join("sys/npu").join(id)).unwrap();
        }
        fs::create_dir(root.path().join("classes")).unwrap();
        let class = "version = 1\nresource = 'vendor.com/npu'\nrequest = { env = 'VISIBLE' }\n\
                     device = { id = '{id}' }\n[[discover]]\npath = '/sys/npu/{id}'\n";
        fs::write(root.path().join("classes/npu.toml"), class).unwrap();
        let kubelet_checkpoint = testdata(recording).join("kubelet_internal_checkpoint.json");
        let trust = Trust {
            kubelet_checkpoint,
            ..Trust::default()
        };
        Host {
            root,
            recording,
            trust,
            class: BTreeMap::new(),
        }
    }

    pub(crate) fn config(&self) -> Value {
        let text = fs::read(testdata(self.recording).join("config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub(crate) fn checkpoint(&mut self, text: impl AsRef<[u8]>) {
        self.trust.kubelet_checkpoint = self.root.path().join("checkpoint");
        fs::write(&self.trust.kubelet_checkpoint, text).unwrap();
    }

    /// The devices that a container gets, how many warnings there are, and
    /// the plan's text; or why it does not start.
    pub(crate) fn start(&self, config: &Value) -> Result<(Vec<String>, usize, String), String> {
        self.start_by(&Caller::Engine, config)
    }

    /// The same for a container in which CDI specifications add our hook for these
    /// devices.
    pub(crate) fn start_with_cdi(
        &self,
        devices: &[&str],
        config: &Value,
    ) -> Result<(Vec<String>, usize, String), String> {
        let mut config = config.clone();
        let hooks = devices.iter().map(|device| {
            let args = ["boathook-hook", "create-runtime", "--cdi", device];
            serde_json::json!({ "path": "/usr/bin/boathook-hook", "args": args })
        });
        config["hooks"]["createRuntime"] = hooks.collect();
        let first = CdiGrant::parse(devices[0])?;
        self.start_by(&Caller::Cdi(first), &config)
    }

    fn start_by(
        &self,
        caller: &Caller,
        config: &Value,
    ) -> Result<(Vec<String>, usize, String), String> {
        let bundle = self.root.path().join("bundle");
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        let config = Config {
            classes: vec![self.root.path().join("classes")],
            host_root: self.root.path().into(),
            trust: self.trust.clone(),
            class: self.class.clone(),
            ..Config::default()
        };
        let bundle = Bundle::read(&bundle).unwrap();
        let plan = plan_container_injection(&bundle, caller, &config);
        let plan = plan.map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
        let devices = plan
            .grants
            .iter()
            .flat_map(|grant| &grant.devices)
            .map(ToString::to_string)
            .collect();
        Ok((devices, plan.warnings.len(), plan.to_string()))
    }
}

fn testdata(recording: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(recording)
}

pub(crate) fn set_env(config: &mut Value, value: &str) {
    let env = config["process"]["env"].as_array_mut().unwrap();
    env.retain(|entry| !entry.as_str().unwrap().starts_with("VISIBLE="));
    env.push(format!("VISIBLE={value}").into());
}

/// Sets an annotation of the container's own, as the engine passes on those of
/// an allocation.
pub(crate) fn annotate(recording: &str, config: &mut Value, key: &str, value: &str) {
    config["annotations"][key] = value.into();
    if recording == CRIO {
        config["annotations"]["io.kubernetes.cri-o.Annotations"] =
            serde_json::json!({ key: value }).to_string().into();
    }
}

pub(crate) fn recorded(recording: &str, container: &str) -> Vec<String> {
    let text = fs::read(testdata(recording).join("kubelet_internal_checkpoint.json")).unwrap();
    let checkpoint: Value = serde_json::from_slice(&text).unwrap();
    let entries = checkpoint["Data"]["PodDeviceEntries"].as_array().unwrap();
    let of_container = entries.iter().filter(|e| e["ContainerName"] == container);
    let ids = of_container.flat_map(|entry| entry["DeviceIDs"]["-1"].as_array().unwrap());
    let mut ids: Vec<String> = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}
