//! Checks that no two classes use the same request variable or the same resource.

use std::collections::BTreeMap;

use super::DeviceClass;
use crate::name::ClassName;

/// The request variables and resources of all classes, each with the class that uses it. If two
/// classes used the same name, a request with this name would not say which class is meant.
#[derive(Debug, Default)]
pub struct NameOwners(BTreeMap<String, ClassName>);

/// The error that two classes use the same request variable or the same resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "classes {first} and {second} both use {name}; disable one, for example with an empty file \
     /etc/boathook/classes.d/{second}.toml"
)]
pub struct NameConflict {
    pub first: ClassName,
    pub second: ClassName,
    /// The name of the variable or resource, such as `vendor.example/npu`.
    pub name: String,
}

impl NameOwners {
    pub fn claim_request_variable(&mut self, class: &DeviceClass) -> Result<(), NameConflict> {
        self.claim_name(class.spec.request.env.as_str(), &class.name)
    }

    pub fn claim_name(&mut self, name: &str, class: &ClassName) -> Result<(), NameConflict> {
        if let Some(first) = self.0.get(name) {
            return if first == class {
                Ok(())
            } else {
                Err(NameConflict {
                    first: first.clone(),
                    second: class.clone(),
                    name: name.to_owned(),
                })
            };
        }
        self.0.insert(name.to_owned(), class.clone());
        Ok(())
    }
}
