//! Adds the hook and the plan's device rules to config.json. The runtime then calls the hook, even
//! if the engine does not support hooks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::class::MAX_CONTAINER_START_TIME;
use host_files::json_text;
use host_files::json_text::JsonEditError;
use injection_plan::plan::{Action, InjectionPlan};
use runtime_config::HOOK_ENVIRONMENT;
use serde_json::json;

use super::WrapperError;
use super::masked_paths::RemovedPaths;
use crate::installation;
use crate::oci::Hooks;
use crate::oci::devices;
use crate::oci::hooks::{HOOK_FILE_NAME, MASKED_PATH_OPTION};

const HOOK_TIMEOUT_SECONDS: u32 = runtime_config::HOOK_TIMEOUT_SECONDS;
const _: () = assert!(HOOK_TIMEOUT_SECONDS as u64 > MAX_CONTAINER_START_TIME.as_secs());

/// An entry of the list `hooks.prestart` in config.json. It makes the runtime call the hook
/// program.
pub(super) struct HookEntry {
    /// The absolute path of the hook program.
    path: String,
    /// The path of config.toml. `None` means the default path.
    config_path: Option<String>,
}

impl HookEntry {
    /// Creates the entry for the hook program at `path`. If `path` is `None`, uses the hook program
    /// in the directory of this program. If `config_path` is `None`, the hook reads the default
    /// config.toml.
    pub(super) fn new(
        path: Option<&Path>,
        config_path: Option<&Path>,
    ) -> Result<Self, WrapperError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => installation::adjacent_hook_path(),
        };
        let hook_error = |problem| WrapperError::Hook {
            path: path.clone(),
            problem,
        };
        if !path.is_absolute() {
            return Err(hook_error("is not an absolute path"));
        }
        if !path.is_file() {
            return Err(hook_error("does not exist"));
        }
        let to_text = |path: &Path| path.to_str().map(str::to_owned);
        let config_path = config_path
            .and_then(|path| std::path::absolute(path).ok())
            .and_then(|path| to_text(&path));
        Ok(HookEntry {
            path: to_text(&path).ok_or_else(|| hook_error("has a name that is not UTF-8"))?,
            config_path,
        })
    }

    /// Adds this hook to `config_text`, the text of a config.json, and returns the new text. Also
    /// adds the plan's variables, its device rules that config.json lacks, and the groups `gids`.
    /// Removes `removed_paths` from the masked and read-only paths, because this hook masks them
    /// instead. If `hooks`, the hooks of config.json, already contain a Boathook hook, adds no hook
    /// and removes no paths.
    ///
    /// The hook is added to the stage prestart, which even the oldest runtimes support. The rules
    /// are appended to the list, because a later rule overrides an earlier one.
    pub(super) fn add_to_config(
        &self,
        config_text: &str,
        hooks: &Hooks,
        plan: &InjectionPlan,
        gids: &BTreeSet<u32>,
        removed_paths: &RemovedPaths,
    ) -> Result<String, JsonEditError> {
        let mut config_text = config_text.to_owned();
        if !hooks.reads_requests(Some(Path::new(&self.path))) {
            let entry = self.to_json(&removed_paths.masked);
            config_text = json_text::append_item(&config_text, &["hooks", "prestart"], &entry)?;
            config_text = removed_paths.remove_paths(config_text);
        }
        for (name, value) in &plan.env {
            let variable = json!(format!("{name}={value}")).to_string();
            config_text = json_text::append_item(&config_text, &["process", "env"], &variable)?;
        }
        for gid in gids {
            let list = ["process", "user", "additionalGids"];
            config_text = json_text::append_item(&config_text, &list, &gid.to_string())?;
        }
        for step in &plan.steps {
            if let Action::Allow {
                rule,
                is_in_spec: false,
                ..
            } = &step.action
            {
                let rule = json!(devices::to_oci_rule(rule)).to_string();
                config_text = json_text::append_item(
                    &config_text,
                    &["linux", "resources", "devices"],
                    &rule,
                )?;
            }
        }
        Ok(config_text)
    }

    fn to_json(&self, masked_paths: &[PathBuf]) -> String {
        let mut args = vec![HOOK_FILE_NAME];
        if let Some(config_path) = &self.config_path {
            args.extend(["--config", config_path]);
        }
        // `filter_map` drops no path, because the masked paths are from config.json and therefore
        // valid UTF-8.
        for path in masked_paths.iter().filter_map(|path| path.to_str()) {
            args.extend([MASKED_PATH_OPTION, path]);
        }
        args.push("prestart");
        json!({"path": self.path, "args": args, "env": [HOOK_ENVIRONMENT], "timeout": HOOK_TIMEOUT_SECONDS})
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use device_class::device::{Access, DeviceKind, DeviceRule};
    use injection_plan::plan::InjectionStep;
    use serde_json::Value;

    use super::*;

    fn hook() -> HookEntry {
        HookEntry {
            path: "/opt/boathook/1/boathook-hook".into(),
            config_path: None,
        }
    }

    fn added(config_text: &str, plan: &InjectionPlan) -> Result<String, JsonEditError> {
        let removed = RemovedPaths {
            masked: vec!["/sys/firmware".into()],
            read_only: Vec::new(),
        };
        let hooks = Hooks::from_config(config_text);
        hook().add_to_config(config_text, &hooks, plan, &BTreeSet::new(), &removed)
    }

    fn plan() -> InjectionPlan {
        InjectionPlan {
            steps: vec![InjectionStep {
                action: Action::Allow {
                    rule: DeviceRule::new(DeviceKind::Character, 10, 183, Access::ALL),
                    is_in_spec: false,
                    owners_by_access: [].into(),
                    host_node_path: None,
                },
                owner_labels: "npu-0".into(),
                owners: Vec::new(),
            }],
            ..InjectionPlan::default()
        }
    }

    #[test]
    fn the_hook_and_the_rules_are_added() {
        let before = r#"{"linux":{"resources":{"devices":[{"allow":false,"access":"rwm"}]}}}"#;
        let after = added(before, &plan()).unwrap();
        let after: Value = serde_json::from_str(&after).unwrap();
        let hook = json!([{
            "path": "/opt/boathook/1/boathook-hook",
            "args": ["boathook-hook", "--masked-path", "/sys/firmware", "prestart"],
            "env": [HOOK_ENVIRONMENT],
            "timeout": HOOK_TIMEOUT_SECONDS,
        }]);
        let rules = json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 10, "minor": 183, "access": "rwm"},
        ]);
        assert_eq!(after["hooks"]["prestart"], hook);
        assert_eq!(after["linux"]["resources"]["devices"], rules);
    }

    /// A hook that is there already does not get the argument with the path.
    #[test]
    fn masks_are_removed_only_for_the_hook_that_is_added() {
        for (hooks, is_removed) in [
            ("{}", true),
            (r#"{"prestart":[{"path":"/usr/bin/boathook-hook"}]}"#, false),
        ] {
            let before = format!(
                r#"{{"hooks":{hooks},"linux":{{"maskedPaths":["/sys/firmware","/proc/kcore"]}}}}"#
            );
            let after = added(&before, &InjectionPlan::default()).unwrap();
            let after: Value = serde_json::from_str(&after).unwrap();
            let masked_paths = if is_removed {
                json!(["/proc/kcore"])
            } else {
                json!(["/sys/firmware", "/proc/kcore"])
            };
            assert_eq!(after["linux"]["maskedPaths"], masked_paths, "{hooks}");
        }
    }

    #[test]
    fn variables_are_added_to_those_of_the_container() {
        let plan = InjectionPlan {
            env: [("CHIP_SERIAL".to_owned(), "a\"b".to_owned())].into(),
            ..InjectionPlan::default()
        };
        for (before, expected) in [
            (
                r#"{"process":{"env":["PATH=/bin"]}}"#,
                json!(["PATH=/bin", "CHIP_SERIAL=a\"b"]),
            ),
            (r#"{"process":{}}"#, json!(["CHIP_SERIAL=a\"b"])),
        ] {
            let after = added(before, &plan).unwrap();
            let after: Value = serde_json::from_str(&after).unwrap();
            assert_eq!(after["process"]["env"], expected, "{before}");
        }
    }

    #[test]
    fn a_configuration_elsewhere_is_named() {
        let hook = HookEntry {
            config_path: Some("/elsewhere/config.toml".into()),
            ..hook()
        };
        let entry: Value = serde_json::from_str(&hook.to_json(&[])).unwrap();
        let wanted = json!([
            "boathook-hook",
            "--config",
            "/elsewhere/config.toml",
            "prestart"
        ]);
        assert_eq!(entry["args"], wanted);
    }

    #[test]
    fn our_own_entry_is_known_and_others_are_not() {
        let entry =
            |stage: &str, path: &str| format!(r#"{{"hooks":{{"{stage}":[{{"path":"{path}"}}]}}}}"#);
        for (config_text, known) in [
            (entry("prestart", "/opt/boathook/1/boathook-hook"), true),
            (
                entry("createRuntime", "/opt/boathook/1/boathook-hook"),
                true,
            ),
            (entry("prestart", "/opt/boathook/0/boathook-hook"), true),
            (entry("prestart", "/opt/boathook/0/boathook"), true),
            (entry("poststop", "/opt/boathook/1/boathook-hook"), false),
            (entry("prestart", "/opt/boathook/other"), false),
            (entry("prestart", "/opt/boathook/1/boathook-runtime"), false),
            (r#"{"hooks":{"prestart":[1,{},{"path":2}]}}"#.into(), false),
            ("{}".into(), false),
        ] {
            let path = hook().path;
            let is_known = Hooks::from_config(&config_text).reads_requests(Some(Path::new(&path)));
            assert_eq!(is_known, known, "{config_text}");
            let after = added(&config_text, &InjectionPlan::default()).unwrap();
            assert_eq!(after == config_text, known, "{config_text}");
            assert!(Hooks::from_config(&after).reads_requests(None), "{after}");
        }
    }
}
