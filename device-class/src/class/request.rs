//! How a container requests devices, capabilities and files (`[request]`).

use crate::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::name::{AttributeName, CapabilityName, ClassName, EnvName, ListName, RequirementName};
use crate::template::Template;

/// # `[request]`
///
/// How a container requests devices of the class.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "request"))]
pub struct RequestSpec {
    /// The variable with which a container requests devices. Its value is `all`, `none`, `void`, or
    /// a comma-separated list of ids, aliases, paths in /dev, indexes and ranges of indexes.
    pub env: EnvName,
    /// Other names that the vendor's software has for the variable `env`, such as that of an
    /// earlier release. They request nothing: `boathook doctor` names `env` for a container that
    /// sets one.
    #[serde(default)]
    pub other_env: Vec<EnvName>,
    /// The variable in which a container lists the capabilities that it requests. Required if the
    /// class uses `capability` or `unless_capability`.
    pub capabilities_env: Option<EnvName>,
    /// Variables that select a capability by their value, such as `X_TRACE = { enabled = "trace"
    /// }`. A container that requests `all` capabilities does not get these.
    #[serde(default)]
    pub switches: BTreeMap<EnvName, BTreeMap<String, CapabilityName>>,
    /// Capabilities that only a trusted container gets. A container in a pod is trusted if the pod
    /// is in `trusted_pods`. Any other container is trusted if it may have CAP_SYS_ADMIN. If an
    /// untrusted container requests one of these capabilities, it is refused.
    #[serde(default)]
    pub trusted_capabilities: Vec<CapabilityName>,
    /// The capabilities that a container gets if it requests none.
    #[serde(default)]
    pub default_capabilities: Vec<CapabilityName>,
    /// Whether a container is refused if it requests a capability that the class does not have. By
    /// default, if the class has another capability of the request, the unknown name is ignored
    /// with a note.
    #[serde(default)]
    pub refuses_unknown_capabilities: bool,
    /// The other capabilities that each capability implies. The container gets the libraries, files
    /// and nodes of an implied capability, but not its programs.
    #[serde(default, rename = "implies")]
    pub implied_capabilities: BTreeMap<CapabilityName, Vec<CapabilityName>>,
    /// The capability with which a container also gets 32-bit versions of the libraries in
    /// `[[edits]]`, if the host has them.
    pub capability_32bit: Option<CapabilityName>,
    /// The variable in which a container names lists of files. The lists are files on the host; see
    /// `files_listed_in`.
    #[serde(rename = "lists_env")]
    pub file_lists_env: Option<EnvName>,
    /// The lists of files that a container gets if it does not name a list in `lists_env`. It is
    /// not an error if the host does not have one of them.
    #[serde(default, rename = "default_lists")]
    pub default_file_lists: Vec<ListName>,
    /// Additional CDI kinds that a request may use, such as `runtime.vendor.com/gpu`. The class's
    /// resource is always accepted as a kind.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Whether a name in a request that no device has is ignored, with a warning. By default such a
    /// name is an error.
    #[serde(default, rename = "ignores_unknown")]
    pub ignores_unknown_devices: bool,
    /// Whether a request is ignored, with a warning, if the host has no device of the class. This
    /// is for a variable that a cluster or an image sets for every container. By default a request
    /// for certain devices is then an error; a request for all devices is not.
    #[serde(default, rename = "ignores_absence")]
    pub ignores_missing_devices: bool,
    /// Variables of the vendor's own software that select something other than whole devices, each
    /// with advice for users. A request that sets one of these variables is refused.
    #[serde(default, rename = "refused_env")]
    pub refused_variables: BTreeMap<String, String>,
    /// Variables of the vendor's libraries that select devices by their numbers in the container,
    /// which begin at 0. A number that no device of the container has, such as a number on the
    /// host, causes a warning.
    #[serde(default)]
    pub container_index_env: Vec<EnvName>,
    /// The requirements that an image states about the host.
    pub requirements: Option<RequirementSpec>,
    /// Pairs of variables with which a container sets a value for a single device.
    pub pairs: Option<EnvPairSpec>,
}

impl RequestSpec {
    /// Returns whether names in a request that no device has are ignored, instead of being an
    /// error. `host_has_devices` says whether the host has devices of the class.
    pub fn ignores_unknown_names(&self, host_has_devices: bool) -> bool {
        self.ignores_unknown_devices || (self.ignores_missing_devices && !host_has_devices)
    }

    /// Returns the capabilities that only a variable of `switches` selects. A request for all
    /// capabilities does not include them.
    pub fn switchable_capabilities(&self) -> BTreeSet<&CapabilityName> {
        let switches = self.switches.values();
        collect_by_insertion(switches.flat_map(BTreeMap::values))
    }

    /// Returns the capabilities of a container that requests none: the default capabilities, and
    /// all capabilities that these imply.
    pub fn find_default_capabilities(&self) -> BTreeSet<CapabilityName> {
        let capabilities = collect_by_insertion(self.default_capabilities.iter().cloned());
        self.add_implied_capabilities(&capabilities)
    }

    /// Returns `capabilities` and all capabilities that they imply, directly or indirectly.
    pub fn add_implied_capabilities(
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
/// Variables in which an image states what it requires of the host, such as `toolkit>=12.4
/// brand=x,driver>=470`. Spaces separate alternatives, of which one must be met. Commas separate
/// the conditions of an alternative. A name that is not in `values` is unknown. An alternative with
/// an unknown name is used only if all alternatives have one; the condition then counts as met,
/// with a note.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "requirements"))]
pub struct RequirementSpec {
    /// The prefix of the variables that state requirements, such as `ACME_REQUIRE_`. The host must
    /// meet the requirements of all such variables of a container.
    pub env_prefix: EnvName,
    /// Prefixes of variables that begin with `env_prefix` but do not state requirements.
    #[serde(default, rename = "except_prefixes")]
    pub excluded_prefixes: Vec<EnvName>,
    /// The variable with which a container disables the check of requirements. It does so if its
    /// value is 1, t, T, true, TRUE or True.
    pub disable_env: Option<EnvName>,
    /// The names that requirements may use, each with a template for its value. The templates may
    /// use the attributes of a device, and the check is made for each device. An empty value counts
    /// as unknown. For a container without a device, requirements about devices count as met.
    pub values: BTreeMap<RequirementName, Template>,
    /// The name of a version in `values`. If the host does not meet a requirement about this
    /// version, but another minor version with the same major version would meet it, the container
    /// gets only a warning.
    pub warn_within_major: Option<RequirementName>,
}

impl RequirementSpec {
    /// Returns whether an environment variable with this name, such as `ACME_REQUIRE_TOOLKIT`,
    /// states requirements about the host.
    pub fn is_requirement(&self, name: &str) -> bool {
        let has_prefix = |prefix: &EnvName| name.starts_with(prefix.as_str());
        has_prefix(&self.env_prefix) && !self.excluded_prefixes.iter().any(has_prefix)
    }

    /// Describes the settings that disable the check of requirements: a variable of the container,
    /// and a key of config.toml for the host's administrator.
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
/// Numbered pairs of variables (0 to 63). With a pair, a container sets a value for a single
/// device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "pairs"))]
pub struct EnvPairSpec {
    /// The prefix of the first variable of a pair, which selects the device. After the prefix comes
    /// the number of the pair.
    #[serde(rename = "select_env")]
    pub selector_env: EnvName,
    /// A template for the text that the first variable must equal to select a device. It may use
    /// the device's attributes.
    #[serde(rename = "select")]
    pub selector: Template,
    /// The prefix of the second variable of a pair, which holds the value. After the prefix comes
    /// the number of the pair.
    pub value_env: EnvName,
    /// The attribute that has the value of the second variable. The templates of `[prepare]` may
    /// use it.
    pub attribute: AttributeName,
    /// How both variables and `select` are changed before they are compared. `lower` changes them
    /// to lower case; `hex` also removes dashes. Default `lower`.
    #[serde(default)]
    pub normalize: Normalization,
}

/// How texts are changed before they are compared, so that different spellings of a value are
/// equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Normalization {
    /// Texts are compared in lower case.
    #[default]
    Lower,
    /// Hexadecimal ids are compared in lower case and without dashes.
    Hex,
}

impl EnvPairSpec {
    /// Normalizes a value of `[request.pairs]` before it is compared, so that different spellings
    /// are equal. With `hex`, `A1-B2` becomes `a1b2`.
    pub fn normalize_value(&self, text: &str) -> String {
        let text = text.trim().to_ascii_lowercase();
        match self.normalize {
            Normalization::Lower => text,
            Normalization::Hex => text.replace('-', ""),
        }
    }
}
