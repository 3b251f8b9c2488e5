//! The objects that give names to functions and regions, by namespace.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use device_class::name::excerpt;

use super::api::{AcceleratorFunctionSpec, FpgaRegionSpec};
use super::names::{self, Mode, is_id};

/// The meaning of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The device plugin's resource.
    pub resource: String,
    /// The mode in which the resource's ports are offered.
    pub mode: Mode,
    /// The region and the function that each unit is programmed with.
    pub program: Option<Program>,
}

/// The region and the function with which a port is programmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub interface: String,
    pub function: String,
}

/// The objects of one namespace, by name: at most one of each kind.
#[derive(Debug, Clone, Default)]
pub struct Namespace(BTreeMap<String, Vec<Object>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    Function(AcceleratorFunctionSpec),
    Region(FpgaRegionSpec),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Function,
    Region,
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Object::Function(_) => Kind::Function,
            Object::Region(_) => Kind::Region,
        }
    }
}

impl Namespace {
    /// Returns the mapping of a name, which is written without the prefix. The first two error
    /// messages are those of the vendor's webhook.
    pub fn look_up(&self, name: &str) -> anyhow::Result<Mapping> {
        match self.0.get(name).map_or(&[][..], Vec::as_slice) {
            [] => bail!("no such resource: \"{}\"", excerpt(name)),
            [Object::Function(spec)] => from_function(name, spec),
            [Object::Region(FpgaRegionSpec { interface_id })] => {
                ensure!(is_id(interface_id, 32), describe_bad_id(name));
                Ok(Mapping {
                    resource: names::name_development_resource(interface_id),
                    mode: Mode::RegionDevelopment,
                    program: None,
                })
            }
            _ => bail!(
                "\"{name}\" is both an AcceleratorFunction and an FpgaRegion in this namespace: \
                 delete or rename one of them"
            ),
        }
    }
}

fn from_function(name: &str, spec: &AcceleratorFunctionSpec) -> anyhow::Result<Mapping> {
    let (interface, function) = (&spec.interface_id, &spec.afu_id);
    ensure!(
        is_id(interface, 32) && is_id(function, 40),
        describe_bad_id(name)
    );
    match spec.mode.as_str() {
        "af" => Ok(Mapping {
            resource: names::name_function_resource(interface, function)
                .with_context(|| describe_bad_id(name))?,
            mode: Mode::Function,
            program: None,
        }),
        "region" => Ok(Mapping {
            resource: names::name_region_resource(interface),
            mode: Mode::Region,
            program: Some(Program {
                interface: interface.clone(),
                function: function.clone(),
            }),
        }),
        mode => bail!(
            "\"{name}\" is registered with unknown mode \"{}\" instead of \"af\" or \"region\"",
            excerpt(mode)
        ),
    }
}

fn describe_bad_id(name: &str) -> String {
    format!("\"{name}\" has an id that is not hexadecimal, or has a wrong length")
}

#[derive(Debug, Default)]
pub struct Mappings {
    namespaces: BTreeMap<String, Namespace>,
    /// The kinds that have been listed once.
    listed: BTreeSet<Kind>,
}

impl Mappings {
    /// Returns whether both kinds have been listed once.
    pub fn is_complete(&self) -> bool {
        self.listed.len() == 2
    }

    pub fn namespace(&self, name: &str) -> Namespace {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    pub fn count(&self) -> usize {
        self.namespaces.values().map(|names| names.0.len()).sum()
    }

    /// Adds or updates an object. Returns the reason why the name of the object cannot be used, or
    /// `None` if it can.
    pub fn set(&mut self, namespace: &str, name: &str, object: Object) -> Option<String> {
        let names = self.namespaces.entry(namespace.to_owned()).or_default();
        let objects = names.0.entry(name.to_owned()).or_default();
        objects.retain(|known| known.kind() != object.kind());
        objects.push(object);
        if names::parse_mode(name).is_some() {
            return Some(format!(
                "\"{name}\" has the form of a device plugin's resource, which pods get as it is: \
                 the object is ignored"
            ));
        }
        names.look_up(name).err().map(|error| error.to_string())
    }

    pub fn remove(&mut self, namespace: &str, name: &str, kind: Kind) {
        self.retain(|of, known, object| (of, known, object.kind()) != (namespace, name, kind));
    }

    /// Removes the objects of a kind that are not in `listed`, the list of all its objects.
    pub fn keep_only(&mut self, kind: Kind, listed: &BTreeSet<(String, String)>) {
        self.retain(|namespace, name, object| {
            object.kind() != kind || listed.contains(&(namespace.to_owned(), name.to_owned()))
        });
        self.listed.insert(kind);
    }

    fn retain(&mut self, keep: impl Fn(&str, &str, &Object) -> bool) {
        self.namespaces.retain(|namespace, names| {
            names.0.retain(|name, objects| {
                objects.retain(|object| keep(namespace, name, object));
                !objects.is_empty()
            });
            !names.0.is_empty()
        });
    }
}
