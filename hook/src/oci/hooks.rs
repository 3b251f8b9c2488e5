//! Parses the hooks in config.json. Each device of a CDI specification that `boathook cdi` has
//! generated adds a hook, and the arguments of this hook name the device that is granted to the
//! container. The arguments are trusted, because only root writes CDI specifications and hooks.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use device_class::name::{ClassName, is_reserved_name};
use injection_plan::cdi::CLAIM_SEPARATOR;
use injection_plan::request::{DeviceList, Item};
use serde::Deserialize;

/// The option of the hook that names a granted device.
pub(crate) const CDI_OPTION: &str = "--cdi";

/// The option of the hook that names a masked path, which the hook hides instead of the runtime.
pub(crate) const MASKED_PATH_OPTION: &str = "--masked-path";

/// The file name of the hook's program.
pub(crate) const HOOK_FILE_NAME: &str = "boathook-hook";

/// The file names of the hook's program in all versions of Boathook. In the first versions,
/// `boathook` was the hook.
const KNOWN_HOOK_FILE_NAMES: [&str; 2] = [HOOK_FILE_NAME, "boathook"];

/// The devices that one hook of a CDI specification grants. The hook's argument has the form
/// `CLASS=DEVICE`, or `CLASS=DEVICES@CLAIM` for a resource claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiGrant {
    pub class: ClassName,
    /// The id, index or alias of the device, or `all`. For a resource claim there may be several
    /// devices.
    pub devices: DeviceList,
    /// The uid of the resource claim for which the devices were prepared.
    pub claim: Option<String>,
}

impl CdiGrant {
    /// Parses the value of the hook's option [`CDI_OPTION`]. The text after the last `@` is the
    /// uid of a claim, unless that `@` is in quotes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (class, device) = split_class(text)?;
        let claim_split = device
            .rsplit_once(CLAIM_SEPARATOR)
            .filter(|(_, claim)| !claim.contains('"'));
        let (device, claim) = match claim_split {
            None => (device, None),
            Some((device, claim)) => (device, Some(claim.to_owned())),
        };
        Self::new(class, device, claim)
    }

    /// Parses `CLASS=DEVICE` on a user's command line, where no claim can be named.
    pub fn parse_user_device(text: &str) -> Result<Self, String> {
        let (class, device) = split_class(text)?;
        Self::new(class, device, None)
    }

    fn new(class: ClassName, device: &str, claim: Option<String>) -> Result<Self, String> {
        let devices = DeviceList::parse(device).map_err(|error| error.to_string())?;
        if devices.items().is_empty() {
            return Err("not CLASS=DEVICE".to_owned());
        }
        let names_no_device = |item: &&Item| {
            // A qualified CDI name has the device kind before the name: `vendor.com/gpu=0`.
            let name = item.text.rsplit('=').next().unwrap_or_default();
            let is_all = name.eq_ignore_ascii_case("all");
            !item.is_quoted && !is_all && is_reserved_name(name)
        };
        if let Some(item) = devices.items().iter().find(names_no_device) {
            return Err(format!("`{}` names no device", item.text));
        }
        Ok(CdiGrant {
            class,
            devices,
            claim,
        })
    }
}

fn split_class(text: &str) -> Result<(ClassName, &str), String> {
    let (class, device) = text.split_once('=').ok_or("not CLASS=DEVICE")?;
    let class = ClassName::try_from(class.to_owned()).map_err(|error| error.to_string())?;
    Ok((class, device))
}

/// The member `hooks` of config.json (OCI runtime specification, "POSIX-platform Hooks").
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    #[serde(default, deserialize_with = "super::bundle::deserialize_valid_items")]
    prestart: Vec<Hook>,
    #[serde(default, deserialize_with = "super::bundle::deserialize_valid_items")]
    create_runtime: Vec<Hook>,
}

/// A hook of config.json. As in execv(3), the first member of `args` is the program's name.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Hook {
    pub(crate) path: PathBuf,
    #[serde(default)]
    args: Vec<String>,
}

impl Hook {
    /// Returns whether the hook's path, or the target of a symbolic link at this path, has a file
    /// name of Boathook's hook. `boathook-init install --as` creates such a link with the name of
    /// a vendor's hook, by which Docker calls it.
    fn is_boathook_hook(&self) -> bool {
        has_hook_file_name(&self.path)
            || fs::read_link(&self.path).is_ok_and(|target| has_hook_file_name(&target))
    }

    /// Returns the value of [`CDI_OPTION`], or `None` if no CDI specification added the hook. The
    /// value is empty if the option is the last argument.
    fn find_cdi_value(&self) -> Option<&str> {
        self.option_values(CDI_OPTION).next()
    }

    /// Returns all values of an option. A value is the text after `=` or the next argument.
    fn option_values<'h>(&'h self, option: &'static str) -> impl Iterator<Item = &'h str> {
        let mut arguments = self.args.iter();
        iter::from_fn(move || {
            loop {
                let Some(rest) = arguments.next()?.strip_prefix(option) else {
                    continue;
                };
                if rest.is_empty() {
                    return Some(arguments.next().map_or("", String::as_str));
                }
                if let Some(value) = rest.strip_prefix('=') {
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
    pub(crate) fn from_config(text: &str) -> Self {
        #[derive(Deserialize)]
        struct Config {
            #[serde(default, deserialize_with = "super::bundle::deserialize_or_default")]
            hooks: Hooks,
        }
        serde_json::from_str(text).map_or_else(|_| Self::default(), |config: Config| config.hooks)
    }

    fn iter_hooks(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        let prestart = self.prestart.iter().map(|hook| ("prestart", hook));
        let create_runtime = self.create_runtime.iter();
        prestart.chain(create_runtime.map(|hook| ("createRuntime", hook)))
    }

    /// Returns Boathook's hooks with their lifecycle stages, in the order in which the runtime
    /// calls them.
    pub(crate) fn find_boathook_hooks(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        self.iter_hooks()
            .filter(|(_, hook)| hook.is_boathook_hook())
    }

    /// Returns whether a Boathook hook, or the hook at `path`, reads the requests of the
    /// container. A hook that a CDI specification added does not; it only gets the device of its
    /// arguments.
    pub(crate) fn reads_requests(&self, path: Option<&Path>) -> bool {
        self.iter_hooks().any(|(_, hook)| {
            let is_boathook_hook = Some(&*hook.path) == path || hook.is_boathook_hook();
            is_boathook_hook && hook.find_cdi_value().is_none()
        })
    }

    /// Returns the masked paths that Boathook's hooks hide instead of the runtime.
    pub(super) fn list_masked_paths(&self) -> Vec<PathBuf> {
        let hooks = self.find_boathook_hooks();
        let paths = hooks.flat_map(|(_, hook)| hook.option_values(MASKED_PATH_OPTION));
        paths.map(PathBuf::from).collect()
    }

    /// Returns the grants in the arguments of Boathook's hooks, in the order in which the runtime
    /// calls them. An invalid grant is left out here; the hook that is called with it fails, and
    /// the container does not start.
    pub(super) fn parse_grants(&self) -> Vec<CdiGrant> {
        let values = self
            .find_boathook_hooks()
            .filter_map(|(_, hook)| hook.find_cdi_value());
        values
            .filter_map(|grant| CdiGrant::parse(grant).ok())
            .collect()
    }
}

/// Merges the grants of each class into one list of devices.
pub(crate) fn group_by_class(grants: &[CdiGrant]) -> BTreeMap<ClassName, DeviceList> {
    let mut by_class: BTreeMap<&ClassName, Vec<&DeviceList>> = BTreeMap::new();
    for grant in grants {
        let lists = by_class.entry(&grant.class).or_default();
        lists.push(&grant.devices);
    }
    by_class
        .into_iter()
        .map(|(class, lists)| (class.clone(), DeviceList::concatenate(lists)))
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
        let claims = hooks
            .parse_grants()
            .into_iter()
            .filter_map(|grant| grant.claim);
        assert_eq!(claims.collect::<Vec<_>>(), ["u-1"]);
        let grants = group_by_class(&hooks.parse_grants());
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
            grant
                .ok()
                .map(|grant| (grant.devices.to_string(), grant.claim.unwrap_or_default()))
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
            let owned = |(device, claim): (&str, &str)| (device.to_owned(), claim.to_owned());
            assert_eq!(parts(CdiGrant::parse(text)), of_hook.map(owned), "{text}");
            let named = parts(CdiGrant::parse_user_device(text));
            assert_eq!(named, of_user.map(owned), "{text}");
        }
    }
}
