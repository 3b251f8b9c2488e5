//! What belongs to one class alone.

use std::collections::BTreeMap;

use super::DeviceClass;
use crate::name::ClassName;

/// Which class has which variable, or which resource. Two classes never share
/// one: a container that sets the variable would not say which of them it means.
#[derive(Debug, Default)]
pub struct Claims(BTreeMap<String, ClassName>);

/// Two classes have the same variable or resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "classes {first} and {second} both use {what}; disable one, for example with an empty file \
     /etc/boathook/classes.d/{second}.toml"
)]
pub struct Claimed {
    /// The class that was there first.
    pub first: ClassName,
    /// The other one.
    pub second: ClassName,
    /// The variable or resource.
    pub what: String,
}

impl Claims {
    /// Notes the class's request variable.
    ///
    /// # Errors
    /// Another class has it.
    pub fn env(&mut self, class: &DeviceClass) -> Result<(), Claimed> {
        self.claim(class.spec.request.env.as_str(), &class.name)
    }

    /// Notes that `what` belongs to a class.
    ///
    /// # Errors
    /// It belongs to another one.
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
