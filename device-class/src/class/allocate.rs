//! What the plugin returns to the kubelet in addition to names.

use serde::Deserialize;

use crate::name::{AttributeName, CdiName, CdiNameError};
use crate::template::{Attributes, Template, TemplateError};

/// # `[allocate]`
///
/// What the plugin returns to the kubelet in addition to names, and which devices it
/// recommends. On nodes with the hook, names are enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "allocate"))]
pub struct Allocate {
    /// The answer lists the device nodes of the devices and of `[[edits]]`, for
    /// nodes of the cluster without the hook. Device nodes with a `capability`
    /// are listed if it is a default capability. If the hook is called as well,
    /// it omits what the engine has added.
    #[serde(default)]
    pub devices: bool,
    /// The device's CDI name, by template: `vendor.com/class=name`. It is
    /// returned in an annotation `cdi.k8s.io/...`, and the engine injects the
    /// device by its CDI files.
    #[serde(default)]
    pub cdi: Option<CdiTemplate>,
    /// Which devices the plugin recommends for one container. `packed`: as few
    /// devices, groups and NUMA nodes as possible, best fit. `spread`: each
    /// share from another device. Default `packed`.
    #[serde(default)]
    pub placement: Preference,
}

/// Which devices of one container go well together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Preference {
    /// Near each other: few devices, groups and NUMA nodes, with little left
    /// over.
    #[default]
    Packed,
    /// Apart from each other: NUMA nodes, groups and hardware are used evenly.
    Spread,
}

/// A template for a [`CdiName`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CdiTemplate(Template);

/// Why there is no name for a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CdiTemplateError {
    /// Not a template, or an attribute is missing.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Not a name.
    #[error(transparent)]
    Name(#[from] CdiNameError),
}

impl CdiTemplate {
    /// The name with its attributes in place.
    pub fn fill(&self, attributes: &Attributes) -> Result<CdiName, CdiTemplateError> {
        Ok(CdiName::try_from(self.0.fill(attributes)?)?)
    }

    /// The template behind it.
    pub fn template(&self) -> &Template {
        &self.0
    }
}

impl TryFrom<String> for CdiTemplate {
    type Error = CdiTemplateError;

    fn try_from(text: String) -> Result<Self, CdiTemplateError> {
        let template = Template::try_from(text.clone())?;
        // With harmless attributes it shows whether the rest is well-formed.
        let harmless = |name: &AttributeName| (name.clone(), "aa".to_owned());
        let harmless = template.attributes().map(harmless).collect();
        if let Ok(example) = template.fill(&harmless)
            && CdiName::try_from(example).is_err()
        {
            return Err(CdiNameError::of(&text).into());
        }
        Ok(CdiTemplate(template))
    }
}
