//! Parses the hooks in config.json. `boathook cdi` writes CDI specifications with hooks. If an
//! engine gives a container a device of such a specification, it adds a hook to config.json, and
//! the arguments of this hook name the device. They are trusted, because only root writes CDI
//! specifications and hooks.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use device_class::name::{ClassName, is_reserved_name};
use injection_plan::cdi::CLAIM_SEPARATOR;
use injection_plan::request::{DeviceList, DeviceListItem};
use serde::Deserialize;

/// The option of `boathook-hook` that names the devices which a CDI specification grants, such as
/// `--cdi npu=0`.
pub(crate) const CDI_OPTION: &str = "--cdi";

/// The option of `boathook-hook` that names a masked path, such as `--masked-path /sys/firmware`.
/// The hook hides this path in the container, because the runtime does not.
pub(crate) const MASKED_PATH_OPTION: &str = "--masked-path";

pub(crate) const HOOK_FILE_NAME: &str = "boathook-hook";

/// The file names of the hook program in all versions of Boathook. In the first versions,
/// `boathook` itself was the hook.
const KNOWN_HOOK_FILE_NAMES: [&str; 2] = [HOOK_FILE_NAME, "boathook"];

/// The devices that one hook from a CDI specification grants. The hook's argument has the form
/// `CLASS=DEVICE`, or `CLASS=DEVICES@CLAIM` for a Kubernetes resource claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiGrant {
    pub class: ClassName,
    /// The devices, named by id, index or alias, or as `all`. A list with several devices is that
    /// of a resource claim.
    pub devices: DeviceList,
    /// The uid of the Kubernetes resource claim for which the devices were prepared.
    pub claim_uid: Option<String>,
}

impl CdiGrant {
    /// Parses the value of [`CDI_OPTION`]. The text after the last `@` is the uid of a resource
    /// claim. If a quotation mark follows the `@`, the `@` is inside quotes, and belongs to the
    /// name of a device.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (class, device_list_text) = split_class_and_devices(text)?;
        let devices_and_claim = device_list_text
            .rsplit_once(CLAIM_SEPARATOR)
            .filter(|(_, claim_uid)| !claim_uid.contains('"'));
        let (device_list_text, claim_uid) = match devices_and_claim {
            None => (device_list_text, None),
            Some((device_list_text, claim_uid)) => (device_list_text, Some(claim_uid.to_owned())),
        };
        Self::new(class, device_list_text, claim_uid)
    }

    /// Parses `CLASS=DEVICE` from a user's command line. A user names no resource claim, so `@` is
    /// part of the device name.
    pub fn parse_user_device(text: &str) -> Result<Self, String> {
        let (class, device_list_text) = split_class_and_devices(text)?;
        Self::new(class, device_list_text, None)
    }

    fn new(
        class: ClassName,
        device_list_text: &str,
        claim_uid: Option<String>,
    ) -> Result<Self, String> {
        let devices = DeviceList::parse(device_list_text).map_err(|error| error.to_string())?;
        if devices.items().is_empty() {
            return Err("not CLASS=DEVICE".to_owned());
        }
        let has_reserved_name = |item: &&DeviceListItem| {
            // The text may be a qualified CDI name such as `vendor.com/gpu=0`. Only the part after
            // the `=` is the name of the device.
            let name = item.text.rsplit('=').next().unwrap_or_default();
            let is_all = name.eq_ignore_ascii_case("all");
            !item.is_quoted && !is_all && is_reserved_name(name)
        };
        if let Some(item) = devices.items().iter().find(has_reserved_name) {
            return Err(format!("`{}` names no device", item.text));
        }
        Ok(CdiGrant {
            class,
            devices,
            claim_uid,
        })
    }
}

fn split_class_and_devices(text: &str) -> Result<(ClassName, &str), String> {
    let (class_name, device_list_text) = text.split_once('=').ok_or("not CLASS=DEVICE")?;
    let class = ClassName::try_from(class_name.to_owned()).map_err(|error| error.to_string())?;
    Ok((class, device_list_text))
}

/// The object `hooks` in config.json (OCI runtime specification, "POSIX-platform Hooks"). Only the
/// two stages in which Boathook's hook can run are read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    #[serde(default, deserialize_with = "super::bundle::deserialize_valid_items")]
    prestart: Vec<Hook>,
    #[serde(default, deserialize_with = "super::bundle::deserialize_valid_items")]
    create_runtime: Vec<Hook>,
}

/// A hook in config.json. The first item of `args` is the program name, as in execv(3).
#[derive(Debug, Clone, Deserialize)]
pub struct Hook {
    pub path: PathBuf,
    #[serde(default)]
    args: Vec<String>,
}

impl Hook {
    /// Returns whether this hook calls Boathook's hook program. Its path, or the target of a
    /// symbolic link at its path, then has a file name of this program. Such links exist because
    /// `boathook-init install --as` creates one with the name of a vendor's hook, which Docker
    /// calls.
    fn is_boathook_hook(&self) -> bool {
        has_hook_file_name(&self.path)
            || fs::read_link(&self.path).is_ok_and(|target| has_hook_file_name(&target))
    }

    /// Returns the value of [`CDI_OPTION`]. Returns `None` if the hook does not have this option,
    /// so that it is not from a CDI specification. Returns an empty value if the option is the last
    /// argument.
    fn find_cdi_value(&self) -> Option<&str> {
        self.find_option_values(CDI_OPTION).next()
    }

    /// Returns the values of an option that may occur several times. Each value is the text after
    /// `=`, or the next argument.
    fn find_option_values<'h>(&'h self, option: &'static str) -> impl Iterator<Item = &'h str> {
        let mut arguments = self.args.iter();
        iter::from_fn(move || {
            loop {
                let Some(after_option) = arguments.next()?.strip_prefix(option) else {
                    continue;
                };
                if after_option.is_empty() {
                    return Some(arguments.next().map_or("", String::as_str));
                }
                if let Some(value) = after_option.strip_prefix('=') {
                    return Some(value);
                }
            }
        })
    }
}

fn has_hook_file_name(path: &Path) -> bool {
    KNOWN_HOOK_FILE_NAMES
        .iter()
        .any(|name| path.ends_with(name))
}

impl Hooks {
    /// Parses the object `hooks` in `config_json`, the text of a config.json. Returns no hooks if
    /// the text is not a JSON object.
    pub(crate) fn from_config(config_json: &str) -> Self {
        #[derive(Deserialize)]
        struct Config {
            #[serde(default, deserialize_with = "super::bundle::deserialize_or_default")]
            hooks: Hooks,
        }
        serde_json::from_str(config_json)
            .map_or_else(|_| Self::default(), |config: Config| config.hooks)
    }

    fn iter_hooks(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        let prestart = self.prestart.iter().map(|hook| ("prestart", hook));
        let create_runtime = self.create_runtime.iter();
        prestart.chain(create_runtime.map(|hook| ("createRuntime", hook)))
    }

    /// Returns Boathook's hooks in the order in which the runtime calls them, each with its
    /// lifecycle stage.
    pub fn find_boathook_hooks(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        self.iter_hooks()
            .filter(|(_, hook)| hook.is_boathook_hook())
    }

    /// Returns whether config.json has a hook that reads the container's variables and annotations.
    /// This is a Boathook hook, or the hook with the path `path`. A hook from a CDI specification
    /// does not read them, because its arguments name the device.
    pub(crate) fn reads_requests(&self, path: Option<&Path>) -> bool {
        self.iter_hooks().any(|(_, hook)| {
            let is_boathook_hook = Some(&*hook.path) == path || hook.is_boathook_hook();
            is_boathook_hook && hook.find_cdi_value().is_none()
        })
    }

    /// Returns the masked paths in the arguments of Boathook's hooks. The hook hides these paths
    /// instead of the runtime, so that the files which it injects below them stay visible.
    pub(super) fn list_masked_paths(&self) -> Vec<PathBuf> {
        let hooks = self.find_boathook_hooks();
        let paths = hooks.flat_map(|(_, hook)| hook.find_option_values(MASKED_PATH_OPTION));
        paths.map(PathBuf::from).collect()
    }

    /// Returns the grants in the arguments of Boathook's hooks, in the order in which the runtime
    /// calls the hooks. An invalid grant is left out here. The container does not start then,
    /// because the hook with this argument fails.
    pub(super) fn parse_grants(&self) -> Vec<CdiGrant> {
        let values = self
            .find_boathook_hooks()
            .filter_map(|(_, hook)| hook.find_cdi_value());
        values
            .filter_map(|grant| CdiGrant::parse(grant).ok())
            .collect()
    }
}

/// Merges the devices of `grants` into one device list for each class, in the same order and
/// without duplicates.
pub(crate) fn group_grants_by_class(grants: &[CdiGrant]) -> BTreeMap<ClassName, DeviceList> {
    let mut lists_by_class: BTreeMap<&ClassName, Vec<&DeviceList>> = BTreeMap::new();
    for grant in grants {
        let device_lists = lists_by_class.entry(&grant.class).or_default();
        device_lists.push(&grant.devices);
    }
    lists_by_class
        .into_iter()
        .map(|(class, device_lists)| (class.clone(), DeviceList::concatenate(device_lists)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_from_the_arguments_of_our_hooks_alone() {
        let text = r#"{
            "prestart": [{"path": "/opt/boathook/current/bin/boathook-hook", "args": ["boathook-hook", "prestart"]}],
            "createRuntime": [
                {"path": "/usr/bin/other", "args": ["other", "--cdi", "npu=7"]},
                {"path": "/opt/boathook/current/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "npu=1"]},
                {"path": "/usr/bin/boathook-hook", "args": ["boathook-hook", "create-runtime", "--cdi", "npu=0"]},
                {"path": "/usr/bin/boathook-runtime", "args": ["boathook-runtime", "create-runtime", "--cdi", "npu=6"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi=gpu=all", "-v"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi="]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdis=npu=5"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "gpu="]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "fpga=0,1@u-1"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi"]},
                {"path": 1}
            ]
        }"#;
        let hooks: Hooks = serde_json::from_str(text).unwrap();
        let claim_uids = hooks
            .parse_grants()
            .into_iter()
            .filter_map(|grant| grant.claim_uid);
        assert_eq!(claim_uids.collect::<Vec<_>>(), ["u-1"]);
        let grants = group_grants_by_class(&hooks.parse_grants());
        let grants: Vec<_> = grants
            .iter()
            .map(|(class, devices)| (class.as_str(), devices.as_str()))
            .collect();
        assert_eq!(grants, [("fpga", "0,1"), ("gpu", "all"), ("npu", "1,0")]);
    }

    #[test]
    fn masked_paths_are_read_from_the_arguments_of_our_hooks_alone() {
        let text = r#"{
            "prestart": [
                {"path": "/usr/bin/other", "args": ["other", "--masked-path", "/proc/other"]},
                {"path": "/usr/bin/boathook-hook", "args": ["boathook-hook", "--masked-path", "/sys/firmware",
                    "--masked-path=/proc/asound", "--masked-paths=/proc/scsi", "prestart"]}
            ]
        }"#;
        let hooks: Hooks = serde_json::from_str(text).unwrap();
        let wanted = ["/sys/firmware", "/proc/asound"].map(PathBuf::from);
        assert_eq!(hooks.list_masked_paths(), wanted);
    }

    #[test]
    fn a_link_counts_by_its_target() {
        let directory = tempfile::tempdir().unwrap();
        for (name, target, is_ours) in [
            (
                "vendor-hook",
                "/opt/boathook/current/bin/boathook-hook",
                true,
            ),
            ("vendor-other", "/usr/bin/vendor-toolkit", false),
        ] {
            let link = directory.path().join(name);
            std::os::unix::fs::symlink(target, &link).unwrap();
            let hook = serde_json::json!({"path": link, "args": [name, "prestart"]});
            let text = serde_json::json!({"hooks": {"prestart": [hook]}}).to_string();
            let hooks = Hooks::from_config(&text);
            assert_eq!(hooks.reads_requests(None), is_ours, "{name}");
            assert_eq!(
                hooks.find_boathook_hooks().count(),
                usize::from(is_ours),
                "{name}"
            );
        }
    }

    #[test]
    fn a_mark_in_quotes_belongs_to_the_name() {
        let parts = |grant: Result<CdiGrant, String>| {
            grant.ok().map(|grant| {
                (
                    grant.devices.to_string(),
                    grant.claim_uid.unwrap_or_default(),
                )
            })
        };
        for (text, of_hook, of_user) in [
            ("npu=0", Some(("0", "")), Some(("0", ""))),
            ("npu=0,1@u-1", Some(("0,1", "u-1")), Some(("0,1@u-1", ""))),
            ("npu=\"a@b\"", Some(("\"a@b\"", "")), Some(("\"a@b\"", ""))),
            ("npu=\"a@b\"@u-1", Some(("\"a@b\"", "u-1")), None),
            ("npu=a=b", Some(("a=b", "")), Some(("a=b", ""))),
            ("npu=all", Some(("all", "")), Some(("all", ""))),
            (
                "npu=\"none\"",
                Some(("\"none\"", "")),
                Some(("\"none\"", "")),
            ),
            ("npu=", None, None),
            ("npu= ,", None, None),
            ("npu=none", None, None),
            ("npu=0,VOID", None, None),
            ("npu=\"0", None, None),
            ("npu", None, None),
        ] {
            let owned =
                |(device, claim_uid): (&str, &str)| (device.to_owned(), claim_uid.to_owned());
            assert_eq!(parts(CdiGrant::parse(text)), of_hook.map(owned), "{text}");
            let named = parts(CdiGrant::parse_user_device(text));
            assert_eq!(named, of_user.map(owned), "{text}");
        }
    }
}
