//! Stores the mappings from friendly names, by which pods request FPGAs, to the device plugin's
//! resources. AcceleratorFunction and FpgaRegion objects define the mappings. Each namespace has
//! its own mappings.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use device_class::name::excerpt;

use super::api::{AcceleratorFunctionSpec, FpgaRegionSpec};
use super::names::{self, Mode, is_id};

/// The device plugin's resource for a friendly name, and the mode of this resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The name of the device plugin's resource.
    pub resource: String,
    /// The mode in which the device plugin offers the FPGA ports of the resource.
    pub mode: Mode,
    /// The region and the function with which each requested unit is programmed when the container
    /// starts. It is set only if the mode is `Region`.
    pub program: Option<Program>,
}

/// The program of a region: the id of the region's interface, and the id of the function with which
/// the region is programmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub interface_id: String,
    pub function_id: String,
}

/// The objects of one namespace that define friendly names. The key is the name of an object. Two
/// objects may have the same name if they are of different kinds.
#[derive(Debug, Clone, Default)]
pub struct Namespace(BTreeMap<String, Vec<MappingObject>>);

/// An object of the API server that defines a friendly name for an FPGA resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingObject {
    Function(AcceleratorFunctionSpec),
    Region(FpgaRegionSpec),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappingKind {
    Function,
    Region,
}

impl MappingObject {
    fn kind(&self) -> MappingKind {
        match self {
            MappingObject::Function(_) => MappingKind::Function,
            MappingObject::Region(_) => MappingKind::Region,
        }
    }
}

impl Namespace {
    /// Returns the mapping of a friendly name. `name` is the part of the resource name after
    /// [`super::api::RESOURCE_PREFIX`].
    ///
    /// # Errors
    /// Returns an error if the namespace has no object with the name, if it has an object of each
    /// kind with the name, or if the object's id or mode is invalid. If the vendor's webhook has
    /// the same error, the text of the error is the vendor's text.
    pub fn find_mapping(&self, name: &str) -> anyhow::Result<Mapping> {
        match self.0.get(name).map_or(&[][..], Vec::as_slice) {
            [] => bail!("no such resource: \"{}\"", excerpt(name)),
            [MappingObject::Function(spec)] => map_function(name, spec),
            [MappingObject::Region(FpgaRegionSpec { interface_id })] => {
                ensure!(is_id(interface_id, 32), describe_bad_id(name));
                Ok(Mapping {
                    resource: names::build_development_resource_name(interface_id),
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

fn map_function(name: &str, spec: &AcceleratorFunctionSpec) -> anyhow::Result<Mapping> {
    let (interface, function) = (&spec.interface_id, &spec.afu_id);
    ensure!(
        is_id(interface, 32) && is_id(function, 40),
        describe_bad_id(name)
    );
    match spec.mode.as_str() {
        "af" => Ok(Mapping {
            resource: names::build_function_resource_name(interface, function)
                .with_context(|| describe_bad_id(name))?,
            mode: Mode::Function,
            program: None,
        }),
        "region" => Ok(Mapping {
            resource: names::build_region_resource_name(interface),
            mode: Mode::Region,
            program: Some(Program {
                interface_id: interface.clone(),
                function_id: function.clone(),
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

/// The friendly names of all namespaces, as the watches of the API server have reported them.
#[derive(Debug, Default)]
pub struct Mappings {
    namespaces: BTreeMap<String, Namespace>,
    /// The kinds of which the list of all objects has been read at least once.
    listed_kinds: BTreeSet<MappingKind>,
}

impl Mappings {
    /// Returns whether the lists of all objects have been read at least once for both kinds. Before
    /// that, a friendly name may seem to be missing.
    pub fn is_complete(&self) -> bool {
        self.listed_kinds.len() == 2
    }

    /// Returns a copy of the mappings of a namespace. A namespace without objects has no mappings.
    pub fn namespace(&self, name: &str) -> Namespace {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    /// Returns the number of friendly names in all namespaces.
    pub fn count(&self) -> usize {
        self.namespaces.values().map(|names| names.0.len()).sum()
    }

    /// Adds an object, or replaces the object of the same kind and name. If pods cannot use the
    /// name of this object, returns the reason for the log. Otherwise returns `None`.
    pub fn set(&mut self, namespace: &str, name: &str, object: MappingObject) -> Option<String> {
        let names = self.namespaces.entry(namespace.to_owned()).or_default();
        let objects = names.0.entry(name.to_owned()).or_default();
        objects.retain(|other| other.kind() != object.kind());
        objects.push(object);
        if names::parse_mode(name).is_some() {
            return Some(format!(
                "\"{name}\" has the form of a device plugin's resource, which pods get as it is: \
                 the object is ignored"
            ));
        }
        names
            .find_mapping(name)
            .err()
            .map(|error| error.to_string())
    }

    pub fn remove(&mut self, namespace: &str, name: &str, kind: MappingKind) {
        self.retain(|other_namespace, other_name, object| {
            (other_namespace, other_name, object.kind()) != (namespace, name, kind)
        });
    }

    /// Removes each object of a kind that `listed_keys` does not contain. This is the complete list
    /// from the API server, as namespaces and names. Also marks the kind as listed.
    pub fn retain_listed(&mut self, kind: MappingKind, listed_keys: &BTreeSet<(String, String)>) {
        self.retain(|namespace, name, object| {
            object.kind() != kind || listed_keys.contains(&(namespace.to_owned(), name.to_owned()))
        });
        self.listed_kinds.insert(kind);
    }

    fn retain(&mut self, should_keep: impl Fn(&str, &str, &MappingObject) -> bool) {
        self.namespaces.retain(|namespace, names| {
            names.0.retain(|name, objects| {
                objects.retain(|object| should_keep(namespace, name, object));
                !objects.is_empty()
            });
            !names.0.is_empty()
        });
    }
}
