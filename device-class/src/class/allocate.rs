//! What the plugin answers the kubelet besides names.

use serde::Deserialize;

use crate::cdi::{CdiName, CdiNameError};
use crate::name::AttributeName;
use crate::template::{Attributes, Template, TemplateError};

/// `[allocate]`: what the plugin answers the kubelet besides names, and which
/// devices it recommends. Names alone are enough where the hook is called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocate {
    /// Whether the engine is told of the devices' nodes and of the control
    /// nodes, for nodes without the hook.
    #[serde(default)]
    pub devices: bool,
    /// The name under which the engine knows the device by the Container
    /// Device Interface, for those who let the engine inject it.
    #[serde(default)]
    pub cdi: Option<CdiTemplate>,
    /// Which devices the kubelet is advised to take together.
    #[serde(default)]
    pub prefer: Preference,
}

/// Which devices of one container go well together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    ///
    /// # Errors
    /// An attribute is missing, or makes the name none.
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
