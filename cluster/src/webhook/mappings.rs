//! The objects that give names to functions and regions, by namespace.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::excerpt;

use super::api::{AcceleratorFunctionSpec, FpgaRegionSpec};
use super::names::{self, Mode, is_id};

/// What a name represents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The device plugin's resource.
    pub resource: String,
    /// How its ports are offered.
    pub mode: Mode,
    /// The region and the function that each unit is programmed with.
    pub program: Option<Program>,
}

/// What a port is programmed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The id of the region's interface.
    pub interface: String,
    pub function: String,
}

/// Why a name cannot be mapped. The first two texts are those of the vendor's webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// No object has this name.
    #[error("no such resource: \"{0}\"")]
    Unknown(String),
    /// The mode of a function is neither `af` nor `region`.
    #[error(
        "\"{name}\" is registered with unknown mode \"{mode}\" instead of \"af\" or \"region\""
    )]
    UnknownMode { name: String, mode: String },
    /// Two objects have this name.
    #[error(
        "\"{0}\" is both an AcceleratorFunction and an FpgaRegion in this namespace: \
         delete or rename one of them"
    )]
    Ambiguous(String),
    #[error("\"{0}\" has an id that is not hexadecimal, or has a wrong length")]
    BadId(String),
}

/// The objects of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Objects {
    function: Option<AcceleratorFunctionSpec>,
    region: Option<FpgaRegionSpec>,
}

/// The objects of one namespace.
#[derive(Debug, Clone, Default)]
pub struct Namespace(BTreeMap<String, Objects>);

/// An object of one of the kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    Function(AcceleratorFunctionSpec),
    Region(FpgaRegionSpec),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Function,
    Region,
}

impl Namespace {
    /// What a name represents. The name is written without the prefix.
    pub fn look_up(&self, name: &str) -> Result<Mapping, MappingError> {
        let entry = self.0.get(name).cloned().unwrap_or_default();
        match (entry.function, entry.region) {
            (None, None) => Err(MappingError::Unknown(excerpt(name))),
            (Some(_), Some(_)) => Err(MappingError::Ambiguous(name.to_owned())),
            (Some(function), None) => of_function(name, function),
            (None, Some(FpgaRegionSpec { interface_id })) => match is_id(&interface_id, 32) {
                false => Err(MappingError::BadId(name.to_owned())),
                true => Ok(Mapping {
                    resource: names::region_development(&interface_id),
                    mode: Mode::RegionDevelopment,
                    program: None,
                }),
            },
        }
    }
}

fn of_function(name: &str, spec: AcceleratorFunctionSpec) -> Result<Mapping, MappingError> {
    let bad_id = || MappingError::BadId(name.to_owned());
    if !is_id(&spec.interface_id, 32) || !is_id(&spec.afu_id, 40) {
        return Err(bad_id());
    }
    match spec.mode.as_str() {
        "af" => Ok(Mapping {
            resource: names::function(&spec.interface_id, &spec.afu_id).ok_or_else(bad_id)?,
            mode: Mode::Function,
            program: None,
        }),
        "region" => Ok(Mapping {
            resource: names::region(&spec.interface_id),
            mode: Mode::Region,
            program: Some(Program {
                interface: spec.interface_id,
                function: spec.afu_id,
            }),
        }),
        _ => Err(MappingError::UnknownMode {
            name: name.to_owned(),
            mode: excerpt(&spec.mode),
        }),
    }
}

/// The objects of all namespaces.
#[derive(Debug, Default)]
pub struct Mappings {
    namespaces: BTreeMap<String, Namespace>,
    functions_listed: bool,
    regions_listed: bool,
}

impl Mappings {
    /// Whether both kinds have been listed once.
    pub fn are_complete(&self) -> bool {
        self.functions_listed && self.regions_listed
    }

    pub fn namespace(&self, name: &str) -> Namespace {
        self.namespaces.get(name).cloned().unwrap_or_default()
    }

    pub fn count(&self) -> usize {
        self.namespaces.values().map(|names| names.0.len()).sum()
    }

    /// Adds or updates an object. Returns why its name cannot be used.
    pub fn set(&mut self, namespace: &str, name: &str, object: Object) -> Option<String> {
        let names = self.namespaces.entry(namespace.to_owned()).or_default();
        let entry = names.0.entry(name.to_owned()).or_default();
        match object {
            Object::Function(spec) => entry.function = Some(spec),
            Object::Region(spec) => entry.region = Some(spec),
        }
        if names::mode_of(name).is_some() {
            return Some(format!(
                "\"{name}\" has the form of a device plugin's resource, which pods get as it is: \
                 the object is ignored"
            ));
        }
        names.look_up(name).err().map(|error| error.to_string())
    }

    pub fn remove(&mut self, namespace: &str, name: &str, kind: Kind) {
        let Some(names) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if let Some(entry) = names.0.get_mut(name) {
            match kind {
                Kind::Function => entry.function = None,
                Kind::Region => entry.region = None,
            }
            if *entry == Objects::default() {
                names.0.remove(name);
            }
        }
        if names.0.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    /// All objects of a kind were listed: removes the others.
    pub fn keep_only(&mut self, kind: Kind, listed: &BTreeSet<(String, String)>) {
        let of_kind = |entry: &Objects| match kind {
            Kind::Function => entry.function.is_some(),
            Kind::Region => entry.region.is_some(),
        };
        let known = self.namespaces.iter().flat_map(|(namespace, names)| {
            let names = names.0.iter().filter(|(_, entry)| of_kind(entry));
            names.map(|(name, _)| (namespace.clone(), name.clone()))
        });
        let gone: Vec<_> = known.filter(|key| !listed.contains(key)).collect();
        for (namespace, name) in gone {
            self.remove(&namespace, &name, kind);
        }
        match kind {
            Kind::Function => self.functions_listed = true,
            Kind::Region => self.regions_listed = true,
        }
    }
}
