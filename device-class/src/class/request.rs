//! How a container asks, and what it may ask besides devices.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::name::{AttributeName, CapabilityName, EnvName};
use crate::requirement::WordName;
use crate::template::Template;

/// # `[request]`
///
/// How a container asks for devices of the class.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "request"))]
pub struct RequestSpec {
    /// The variable that lists devices: `all`, `none`, `void`, or ids, indices,
    /// ranges and aliases with commas between.
    pub env: EnvName,
    /// The variable that lists capabilities. A class with `capability` or
    /// `unless_capability` somewhere needs it.
    #[serde(default)]
    pub capabilities_env: Option<EnvName>,
    /// The capabilities of a container that names none.
    #[serde(default)]
    pub default_capabilities: Vec<CapabilityName>,
    /// Capabilities that come with another one: their libraries, files and
    /// nodes, without their programs.
    #[serde(default)]
    pub implies: BTreeMap<CapabilityName, Vec<CapabilityName>>,
    /// The capability with which a container gets the libraries of `[[edits]]`
    /// for 32-bit programs, too, as far as the host has them.
    #[serde(default)]
    pub capability_32bit: Option<CapabilityName>,
    /// What an image may require of the host.
    #[serde(default)]
    pub requirements: Option<RequirementSpec>,
    /// What a container may say about each of its devices.
    #[serde(default)]
    pub pairs: Option<PairSpec>,
}

impl RequestSpec {
    /// The capabilities and all that they imply.
    pub fn with_implied(&self, named: &BTreeSet<CapabilityName>) -> BTreeSet<CapabilityName> {
        let mut all = named.clone();
        let mut unseen: Vec<&CapabilityName> = named.iter().collect();
        while let Some(name) = unseen.pop() {
            for implied in self.implies.get(name).into_iter().flatten() {
                if all.insert(implied.clone()) {
                    unseen.push(implied);
                }
            }
        }
        all
    }
}

/// # `[request.requirements]`
///
/// Variables in which an image says what it needs of the host, such as
/// `toolkit>=12.4 brand=x,driver>=470`: alternatives with spaces between, needs
/// with commas. An alternative with a name that is not in `values` counts only
/// where no other can be evaluated: then it is taken to be met as far as it can
/// be told, with a note.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "requirements"))]
pub struct RequirementSpec {
    /// How the variables begin. All that are set have to be met.
    pub env_prefix: EnvName,
    /// How variables begin that are no requirements in spite of it.
    #[serde(default)]
    pub except_prefixes: Vec<EnvName>,
    /// The variable that switches requirements off if it is true: 1, t, T,
    /// true, TRUE or True.
    #[serde(default)]
    pub disable_env: Option<EnvName>,
    /// The names that a requirement may use, with their values by template over
    /// the host's attributes.
    pub values: BTreeMap<WordName, Template>,
}

impl RequirementSpec {
    /// Whether a variable of this name is a requirement.
    pub(crate) fn is_one(&self, name: &str) -> bool {
        let begins = |prefix: &EnvName| name.starts_with(prefix.as_str());
        begins(&self.env_prefix) && !self.except_prefixes.iter().any(begins)
    }
}

/// # `[request.pairs]`
///
/// Numbered pairs of variables (from 0 to 63) in which a container says what it
/// wants of single devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "pairs"))]
pub struct PairSpec {
    /// How the first variable of a pair begins; a number follows.
    pub select_env: EnvName,
    /// What its value has to be equal to, by template over a device's
    /// attributes.
    pub select: Template,
    /// How the second variable begins; the same number follows.
    pub value_env: EnvName,
    /// The attribute that `[prepare]` has the second variable's value in.
    pub attribute: AttributeName,
    /// How both variables and `select` are made equal that mean the same:
    /// `lower` by lower case, `hex` also without dashes. Without it `lower`.
    #[serde(default)]
    pub normalize: Normalize,
}

/// How texts are made equal that mean the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Normalize {
    /// By lower case.
    #[default]
    Lower,
    /// Hexadecimal ids: by lower case and without dashes.
    Hex,
}

impl PairSpec {
    /// A text of a pair in the form in which texts are compared.
    pub(crate) fn canonical(&self, text: &str) -> String {
        let text = text.trim().to_ascii_lowercase();
        match self.normalize {
            Normalize::Lower => text,
            Normalize::Hex => text.replace('-', ""),
        }
    }
}
