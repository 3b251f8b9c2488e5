//! Names that only one class may use.

use std::collections::BTreeMap;

use super::DeviceClass;
use crate::name::ClassName;

/// The request variables and resources of all classes, each with its class. Two classes must
/// not use the same variable or resource, because a request would not identify the class.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<String, ClassName>);

/// An error for two classes that use the same variable or resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "classes {first} and {second} both use {what}; disable one, for example with an empty file \
     /etc/boathook/classes.d/{second}.toml"
)]
pub struct Claimed {
    pub first: ClassName,
    pub second: ClassName,
    /// The variable or resource.
    pub what: String,
}

impl Claims {
    pub fn env(&mut self, class: &DeviceClass) -> Result<(), Claimed> {
        self.claim(class.spec.request.env.as_str(), &class.name)
    }

    pub fn claim(&mut self, what: &str, class: &ClassName) -> Result<(), Claimed> {
        if let Some(first) = self.0.get(what) {
            return match first == class {
                true => Ok(()),
                false => Err(Claimed {
                    first: first.clone(),
                    second: class.clone(),
                    what: what.to_owned(),
                }),
            };
        }
        self.0.insert(what.to_owned(), class.clone());
        Ok(())
    }
}
