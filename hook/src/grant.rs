//! From what a container asks to the plan for it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use device_class::class::PathTemplateError;
use device_class::config::Config;
use device_class::discover::{self, DriverRoot, EditsError, FoundEdits, Inventory};
use device_class::host::RealHost;
use device_class::load;
use device_class::plan::{self, Asked, InjectionPlan, PlanError};
use device_class::request::{ANNOTATION_PREFIX, RefusedRequest, Request};
use device_class::strict_toml::FileError;
use device_class::{DeviceClass, HostView};

use crate::exit::ExitCode;
use crate::oci::Bundle;
use crate::trust::{self, Origin, OriginError, TrustError};

/// Why a container can't be given what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// A class file is wrong.
    #[error(transparent)]
    Class(#[from] FileError),
    /// Two classes have the same variable.
    #[error("the classes {first} and {second} both have the variable {env}; mask one of them")]
    SameEnv {
        /// The first by name.
        first: String,
        /// The second.
        second: String,
        /// The variable.
        env: String,
    },
    /// An annotation names a class that is not there.
    #[error("annotation {ANNOTATION_PREFIX}{0} names a class that this host does not have")]
    UnknownClass(String),
    /// A directory of the configuration or of a class is not there.
    #[error("{what} {} can't be used: {error}", path.display())]
    Root {
        /// Which directory.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// What came of it.
        error: io::Error,
    },
    /// A request's text is malformed.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// A class's files can't be looked up.
    #[error("class {class}: {error}")]
    Edits {
        /// The class.
        class: String,
        /// What is wrong.
        error: EditsError,
    },
    /// Where the container comes from can't be told.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// Nobody's word can be taken for its devices.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The class's driver root can't be told.
    #[error("class {class}: driver_root: {error}")]
    DriverRoot {
        /// The class.
        class: String,
        /// What is wrong.
        error: PathTemplateError,
    },
    /// A request can't be met.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl GrantError {
    /// The exit code that tells a host that is set up wrongly from a request
    /// that can't be met.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            GrantError::Class(_) | GrantError::SameEnv { .. } | GrantError::Root { .. } => {
                ExitCode::Config
            }
            _ => ExitCode::Request,
        }
    }
}

/// A request, with the class that it is for.
struct Wanted {
    class: DeviceClass,
    request: Request,
}

/// What a container asks for.
struct Requests {
    wanted: Vec<Wanted>,
    /// Class files that can't be read. What they are for is not known, and no
    /// reason to keep a container from starting: there are many that have
    /// nothing to do with devices.
    unreadable: Vec<FileError>,
}

/// The plan for a container. One that asks for nothing gets an empty plan,
/// and not even its classes are read.
///
/// # Errors
/// The container asks for something that it can't have in full.
pub fn plan_for(bundle: &Bundle, config: &Config) -> Result<InjectionPlan, GrantError> {
    let Requests { wanted, unreadable } = requests(bundle, config)?;
    let mut plan = match wanted.is_empty() {
        true => InjectionPlan::default(),
        false => plan_of(&wanted, bundle, config)?,
    };
    let unreadable = unreadable
        .iter()
        .map(|error| format!("class left out: {error}"));
    plan.warnings.extend(unreadable);
    Ok(plan)
}

fn plan_of(
    wanted: &[Wanted],
    bundle: &Bundle,
    config: &Config,
) -> Result<InjectionPlan, GrantError> {
    let host = open_root("the host's root", &config.host_root)?;
    let authority = trust::authority(&Origin::of(bundle)?, &config.trust)?;
    let found: Vec<(Inventory, FoundEdits)> = wanted
        .iter()
        .map(|wanted| look_up(wanted, config, &host))
        .collect::<Result<_, _>>()?;
    let asked: Vec<Asked<'_>> = wanted
        .iter()
        .zip(&found)
        .map(|(wanted, (inventory, edits))| Asked {
            class: &wanted.class,
            request: &wanted.request,
            inventory,
            edits,
            authority: &authority,
        })
        .collect();
    Ok(plan::plan(&asked, &bundle.granted)?)
}

/// Opens the root under which a tree is looked up.
///
/// # Errors
/// It is not there.
pub fn open_root(what: &'static str, path: &Path) -> Result<RealHost, GrantError> {
    RealHost::open(path).map_err(|error| GrantError::Root {
        what,
        path: path.into(),
        error,
    })
}

fn requests(bundle: &Bundle, config: &Config) -> Result<Requests, GrantError> {
    let annotations = trust::own_annotations(bundle)?;
    let annotated = |key: &str| annotations.get(key).map(String::as_str);
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for source in load::each_source(&config.classes)? {
        match source {
            Ok(source) => sources.push(source),
            Err(error) => unreadable.push(error),
        }
    }
    let names = annotations
        .keys()
        .filter_map(|key| key.strip_prefix(ANNOTATION_PREFIX));
    for name in names {
        if !sources.iter().any(|source| source.name.as_str() == name) {
            return Err(match unreadable.pop() {
                Some(error) => error.into(),
                None => GrantError::UnknownClass(device_class::name::excerpt(name)),
            });
        }
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut owners: HashMap<String, String> = HashMap::new();
    for source in sources {
        let key = format!("{ANNOTATION_PREFIX}{}", source.name);
        let may_ask =
            annotated(&key).is_some() || source.mentions(|name| bundle.env.contains_key(name));
        if !may_ask {
            continue;
        }
        let class = source.parse()?;
        let Some(request) = Request::of(&class, &bundle.env, annotated)? else {
            continue;
        };
        let (name, variable) = (class.name.to_string(), class.spec.request.env.to_string());
        if let Some(first) = owners.insert(variable.clone(), name.clone()) {
            return Err(GrantError::SameEnv {
                first,
                second: name,
                env: variable,
            });
        }
        wanted.push(Wanted { class, request });
    }
    Ok(Requests { wanted, unreadable })
}

fn look_up(
    wanted: &Wanted,
    config: &Config,
    host: &RealHost,
) -> Result<(Inventory, FoundEdits), GrantError> {
    let Wanted { class, request } = wanted;
    let failed = |error| GrantError::Edits {
        class: class.name.to_string(),
        error,
    };
    let inventory = discover::devices(class, host);
    let attributes = &inventory.host_attributes;
    let configured = config
        .class
        .get(&class.name)
        .and_then(|class| class.driver_root.clone());
    let driver_root = match (configured, &class.spec.driver_root) {
        (Some(path), _) => Some(path),
        (None, Some(template)) => {
            let filled = template.fill(attributes);
            Some(filled.map_err(|error| GrantError::DriverRoot {
                class: class.name.to_string(),
                error,
            })?)
        }
        (None, None) => None,
    };
    let capabilities = &request.capabilities;
    let edits = match &driver_root {
        None => {
            let driver = DriverRoot {
                view: host,
                path: Path::new("/"),
            };
            discover::edits(class, capabilities, attributes, host, driver)
        }
        Some(path) => {
            let view = host.driver_root(path).map_err(|error| GrantError::Root {
                what: "the driver's root",
                path: path.clone(),
                error,
            })?;
            let driver = DriverRoot {
                view: &view as &dyn HostView,
                path,
            };
            discover::edits(class, capabilities, attributes, host, driver)
        }
    };
    Ok((inventory, edits.map_err(failed)?))
}
