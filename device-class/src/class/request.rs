//! The ways in which a container requests devices, capabilities and files.

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::name::{AttributeName, CapabilityName, ClassName, EnvName, ListName, RequirementName};
use crate::template::Template;

/// # `[request]`
///
/// The ways in which a container requests devices of the class.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "request"))]
pub struct RequestSpec {
    /// The variable by which a container requests devices. Its value is `all`, `none`, `void`, or a
    /// comma-separated list of ids, aliases, paths in /dev, indices and ranges.
    pub env: EnvName,
    /// The variable that lists capabilities. Required if the class uses
    /// `capability` or `unless_capability`.
    pub capabilities_env: Option<EnvName>,
    /// Variables that choose a capability by a value, such as `X_TRACE = { enabled =
    /// "trace" }`. These capabilities are not among `all`.
    #[serde(default)]
    pub switches: BTreeMap<EnvName, BTreeMap<String, CapabilityName>>,
    /// Capabilities that a container gets only if no allocation is needed for its devices: in pods
    /// of `trusted_pods`, and outside pods if the container may have CAP_SYS_ADMIN. Any other
    /// container that requests one of them is refused.
    #[serde(default)]
    pub trusted_capabilities: Vec<CapabilityName>,
    /// The capabilities of a container that requests no capabilities.
    #[serde(default)]
    pub default_capabilities: Vec<CapabilityName>,
    /// Whether a container is refused if it names a capability that the class does not have.
    /// Default: the name is ignored, with a note, if the class has another capability of the list.
    #[serde(default)]
    pub refuses_unknown_capabilities: bool,
    /// For each capability, the other capabilities that it implies. A container gets their
    /// libraries, files and nodes, but not their programs.
    #[serde(default, rename = "implies")]
    pub implied_capabilities: BTreeMap<CapabilityName, Vec<CapabilityName>>,
    /// The capability that adds the libraries of `[[edits]]` for 32-bit
    /// programs, if the host has them.
    pub capability_32bit: Option<CapabilityName>,
    /// The variable in which a container names lists of files, for `files_listed_in`.
    #[serde(rename = "lists_env")]
    pub file_lists_env: Option<EnvName>,
    /// The lists of files that a container gets if it names no list in `lists_env`. These lists may
    /// be missing on the host.
    #[serde(default, rename = "default_lists")]
    pub default_file_lists: Vec<ListName>,
    /// Kinds of CDI names that a request may use beside the class's resource, such as
    /// `runtime.vendor.com/gpu`.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Whether names that no device has are left out of a request, with a warning. Default: such a
    /// name is an error.
    #[serde(default, rename = "ignores_unknown")]
    pub ignores_unknown_devices: bool,
    /// Whether a request is ignored, with a warning, on a host that has no device of the class,
    /// even if it names devices. This is for a variable that a cluster or an image sets for every
    /// container. Default: such a request is an error, unless it is for all devices.
    #[serde(default, rename = "ignores_absence")]
    pub ignores_missing_devices: bool,
    /// Variables by which the vendor's own software would select something other than whole
    /// devices, each with advice for users. A request with one of these variables is refused.
    #[serde(default, rename = "refused_env")]
    pub refused_variables: BTreeMap<String, String>,
    /// Requirements of images on the host.
    pub requirements: Option<RequirementSpec>,
    /// Variables by which a container may set a value for a single device.
    pub pairs: Option<PairSpec>,
}

impl RequestSpec {
    /// Returns whether unknown device names in a request are ignored, and are not an error.
    /// `host_has_devices` says whether the host has devices of the class.
    pub fn ignores_unknown_names(&self, host_has_devices: bool) -> bool {
        self.ignores_unknown_devices || (self.ignores_missing_devices && !host_has_devices)
    }

    /// Returns the capabilities that `switches` can choose.
    pub fn switchable_capabilities(&self) -> BTreeSet<&CapabilityName> {
        let switches = self.switches.values();
        inserted(switches.flat_map(BTreeMap::values))
    }

    /// Returns the capabilities of a container that names no capability: the default
    /// capabilities, and all capabilities that these imply.
    pub fn find_default_capabilities(&self) -> BTreeSet<CapabilityName> {
        let capabilities = inserted(self.default_capabilities.iter().cloned());
        self.with_implied(&capabilities)
    }

    /// Returns `capabilities`, and all capabilities that they imply directly or through others.
    pub fn with_implied(
        &self,
        capabilities: &BTreeSet<CapabilityName>,
    ) -> BTreeSet<CapabilityName> {
        let mut names = capabilities.clone();
        let mut pending_names: Vec<&CapabilityName> = capabilities.iter().collect();
        while let Some(name) = pending_names.pop() {
            for implied in self.implied_capabilities.get(name).into_iter().flatten() {
                if names.insert(implied.clone()) {
                    pending_names.push(implied);
                }
            }
        }
        names
    }
}

/// # `[request.requirements]`
///
/// Variables in which an image states its requirements on the host, such as
/// `toolkit>=12.4 brand=x,driver>=470`. Alternatives are separated by spaces, and
/// the conditions of an alternative by commas. An alternative with a name that is
/// not in `values` is used only if no other alternative can be evaluated. Its
/// unknown conditions then count as met, with a note.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "requirements"))]
pub struct RequirementSpec {
    /// The prefix of the environment variables that state requirements, such as `ACME_REQUIRE_`.
    /// The requirements of all such variables of a container must be met.
    pub env_prefix: EnvName,
    /// Prefixes of variables that are not requirements although they begin with
    /// `env_prefix`.
    #[serde(default, rename = "except_prefixes")]
    pub excluded_prefixes: Vec<EnvName>,
    /// The variable that disables requirements if its value is 1, t, T, true,
    /// TRUE or True.
    pub disable_env: Option<EnvName>,
    /// The names that requirements may use, with their values, by template over the attributes of
    /// each device. An empty value counts as unknown. For a container without a device,
    /// requirements on devices count as met.
    pub values: BTreeMap<RequirementName, Template>,
    /// The name of a version in `values`. If a requirement is not met, but another minor version of
    /// the same major version would meet it, there is only a warning.
    pub warn_within_major: Option<RequirementName>,
}

impl RequirementSpec {
    /// Returns whether an environment variable of this name states requirements on the host.
    pub fn is_requirement(&self, name: &str) -> bool {
        let has_prefix = |prefix: &EnvName| name.starts_with(prefix.as_str());
        has_prefix(&self.env_prefix) && !self.excluded_prefixes.iter().any(has_prefix)
    }

    /// Describes the settings by which a user of the class, or the host's administrator, disables
    /// the check of requirements.
    pub fn describe_opt_out(&self, class: &ClassName) -> String {
        let setting = format!("`requirements = false` in [class.{class}] of config.toml");
        match &self.disable_env {
            Some(env) => format!("{env}=1 in the container or {setting}"),
            None => setting,
        }
    }
}

/// # `[request.pairs]`
///
/// Numbered pairs of variables (from 0 to 63) in which a container sets a value
/// for a single device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "pairs"))]
pub struct PairSpec {
    /// The prefix of the name of a pair's first variable, which selects the device. The
    /// number of the pair follows the prefix.
    #[serde(rename = "select_env")]
    pub selector_env: EnvName,
    /// The text that the first variable must equal to select a device, by
    /// template over the device's attributes.
    #[serde(rename = "select")]
    pub selector: Template,
    /// The prefix of the name of a pair's second variable, which holds the value. The
    /// same number follows the prefix.
    pub value_env: EnvName,
    /// The attribute in which `[prepare]` finds the second variable's value.
    pub attribute: AttributeName,
    /// The normalization of both variables and of `select` before they are compared: `lower` to
    /// lower case, `hex` to lower case without dashes. Default `lower`.
    #[serde(default)]
    pub normalize: Normalize,
}

/// The normalization of texts before they are compared, so that texts with the same meaning are
/// equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Normalize {
    /// Texts are compared in lower case.
    #[default]
    Lower,
    /// Hexadecimal ids are compared in lower case and without dashes.
    Hex,
}

impl PairSpec {
    /// Converts a value of one of the two variables, or of `select`, to the normalized form in
    /// which they are compared.
    pub fn normalize_value(&self, text: &str) -> String {
        let text = text.trim().to_ascii_lowercase();
        match self.normalize {
            Normalize::Lower => text,
            Normalize::Hex => text.replace('-', ""),
        }
    }
}
