//! From a container's requests to the plan for it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::{Claimed, Claims};
use device_class::config::Config;
use device_class::discover::{self, Found, LookUpError};
use device_class::host::RealHost;
use device_class::load;
use device_class::name::ClassName;
use device_class::strict_toml::FileError;
use injection_plan::plan::{self, Asked, Authority, InjectionPlan, PlanError};
use injection_plan::request::{ANNOTATION_PREFIX, RefusedRequest, Request, RequestSource};

use crate::exit::ExitCode;
use crate::oci::grants::by_class;
use crate::oci::{Bundle, CdiGrant};
use crate::trust::{self, Origin, OriginError, TrustError};

/// Why a container's request is refused.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// A class file is wrong.
    #[error(transparent)]
    Class(#[from] FileError),
    /// Two classes have the same variable.
    #[error(transparent)]
    SameEnv(#[from] Claimed),
    /// An annotation names a class of which there is no file.
    #[error(
        "annotation {ANNOTATION_PREFIX}{name} names a class that this host does not have{}",
        beside(unreadable)
    )]
    UnknownClass {
        /// The class's name, shortened if it is very long.
        name: String,
        /// The class files of the host that cannot be read.
        unreadable: Vec<FileError>,
    },
    /// A CDI specification names a class that does not exist any more.
    #[error(
        "a CDI specification grants devices of class {name}, which this host does not have; run \
         `boathook cdi generate`{}",
        beside(unreadable)
    )]
    UnknownCdiClass {
        name: ClassName,
        /// The class files of the host that cannot be read.
        unreadable: Vec<FileError>,
    },
    /// The host's root does not exist.
    #[error("host_root {} cannot be opened: {error}", path.display())]
    HostRoot {
        /// Its path in config.toml.
        path: PathBuf,
        /// Why it cannot be opened.
        error: io::Error,
    },
    /// A request's text is malformed.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// A class's files cannot be looked up.
    #[error(transparent)]
    LookUp(#[from] LookUpError),
    /// Where the container comes from cannot be determined.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The origin of its request is not trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A request cannot be met.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl PlannerError {
    /// The exit code that distinguishes a host that is set up wrongly from a request
    /// that cannot be met.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            PlannerError::Class(_)
            | PlannerError::SameEnv(_)
            | PlannerError::HostRoot { .. }
            | PlannerError::LookUp(LookUpError::DriverRoot { .. }) => ExitCode::Config,
            _ => ExitCode::Request,
        }
    }
}

/// What has the plan made. It decides which requests count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// An engine that calls the hook for every container: variables and annotations
    /// count, but not for a class whose devices CDI specifications name.
    Engine,
    /// A hook of a CDI specification: only what specifications grant counts.
    Cdi(CdiGrant),
    /// A user who wants to see all of it.
    User,
}

/// A request, with the class that it is for.
struct ClassRequest {
    class: DeviceClass,
    request: Request,
}

/// What a container requests.
struct Requests {
    wanted: Vec<ClassRequest>,
    /// Class files that cannot be read. What they are for is not known, and no
    /// reason to keep a container from starting: there are many that have
    /// nothing to do with devices.
    unreadable: Vec<FileError>,
}

/// The plan for a container. One that requests nothing gets an empty plan, and not even
/// its classes are read.
pub fn plan_for(
    bundle: &Bundle,
    caller: &Caller,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let origin = Origin::of(bundle);
    let annotations = origin.as_ref().ok().and_then(Origin::annotations);
    let Requests { wanted, unreadable } = requests(bundle, annotations, caller, config)?;
    // A container that requests nothing is not stopped because its origin is uncertain.
    let mut plan = match origin {
        Err(error) if !wanted.is_empty() || trust::may_be_annotated(bundle) => {
            return Err(error.into());
        }
        Ok(origin) if !wanted.is_empty() => plan_of(&wanted, bundle, &origin, config)?,
        _ => InjectionPlan::default(),
    };
    plan.env.retain(|name, _| bundle.env.get(name).is_none());
    let unreadable = unreadable
        .iter()
        .map(|error| format!("class left out: {error}"));
    plan.warnings.extend(unreadable);
    Ok(plan)
}

fn plan_of(
    wanted: &[ClassRequest],
    bundle: &Bundle,
    origin: &Origin,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let host = open_host(config)?;
    let authorities = wanted.iter().map(|ClassRequest { class, request }| {
        if matches!(request.source, RequestSource::Cdi { .. }) {
            return trust::cdi_authority(origin, &bundle.annotations, &config.trust);
        }
        match trust::trusted(origin, &class.settings.trusted_pods) {
            Some(authority) => Ok(authority),
            None => trust::authority(origin, &config.trust),
        }
    });
    let authorities = authorities.collect::<Result<Vec<Authority>, _>>()?;
    let found = wanted
        .iter()
        .map(|ClassRequest { class, request }| discover::look_up(class, request.wanted(), &host));
    let found = found.collect::<Result<Vec<Found>, _>>()?;
    let asked: Vec<Asked<'_>> = wanted
        .iter()
        .zip(&found)
        .zip(&authorities)
        .map(|((wanted, found), authority)| Asked {
            class: &wanted.class,
            request: &wanted.request,
            found,
            authority,
        })
        .collect();
    Ok(plan::plan(&asked, &bundle.spec_devices)?)
}

/// Opens the host's root.
pub fn open_host(config: &Config) -> Result<RealHost, PlannerError> {
    RealHost::open(&config.host_root).map_err(|error| PlannerError::HostRoot {
        path: config.host_root.clone(),
        error,
    })
}

fn requests(
    bundle: &Bundle,
    annotations: Option<&BTreeMap<String, String>>,
    caller: &Caller,
    config: &Config,
) -> Result<Requests, PlannerError> {
    let annotated = |key: &str| annotations?.get(key).map(String::as_str);
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for source in load::each_source(&config.classes)? {
        match source {
            Ok(source) => sources.push(source),
            Err(error) => unreadable.push(error),
        }
    }
    let keys = annotations.into_iter().flat_map(BTreeMap::keys);
    let names: Vec<&str> = keys
        .filter_map(|key| key.strip_prefix(ANNOTATION_PREFIX))
        .collect();
    for name in &names {
        if !sources.iter().any(|source| source.name.as_str() == *name) {
            let error = |unreadable| PlannerError::UnknownClass {
                name: device_class::name::excerpt(name),
                unreadable,
            };
            return Err(without_class(name, unreadable, error));
        }
    }
    let mut granted = by_class(&bundle.cdi);
    let mut wanted: Vec<ClassRequest> = Vec::new();
    let mut claims = Claims::default();
    for source in sources {
        if let Some(devices) = granted.remove(&source.name) {
            if *caller == Caller::Engine {
                continue;
            }
            let class = config.class(&source)?;
            let request = RequestSource::Cdi { devices };
            let request = Request::parse(&class, &bundle.env, request)?;
            wanted.extend(request.map(|request| ClassRequest { class, request }));
            continue;
        }
        if matches!(caller, Caller::Cdi(_)) {
            continue;
        }
        let may_ask = names.contains(&source.name.as_str())
            || source.mentions(|name| bundle.env.get(name).is_some());
        if !may_ask {
            continue;
        }
        let class = config.class(&source)?;
        let Some(request) = Request::of(&class, &bundle.env, annotated)? else {
            continue;
        };
        claims.env(&class)?;
        wanted.push(ClassRequest { class, request });
    }
    if let Some(name) = granted.into_keys().next() {
        let text = name.to_string();
        let error = |unreadable| PlannerError::UnknownCdiClass { name, unreadable };
        return Err(without_class(&text, unreadable, error));
    }
    Ok(Requests { wanted, unreadable })
}

/// Why the class `name` cannot be used: its own file, if that cannot be read, and else that
/// there is none.
fn without_class(
    name: &str,
    mut unreadable: Vec<FileError>,
    unknown: impl FnOnce(Vec<FileError>) -> PlannerError,
) -> PlannerError {
    let is_its_own = |error: &FileError| error.path().file_stem() == Some(name.as_ref());
    match unreadable.iter().position(is_its_own) {
        Some(at) => unreadable.swap_remove(at).into(),
        None => unknown(unreadable),
    }
}

/// The class files that cannot be read, as the end of a message.
fn beside(unreadable: &[FileError]) -> String {
    const SHOWN: usize = 3;
    if unreadable.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = unreadable
        .iter()
        .take(SHOWN)
        .map(FileError::to_string)
        .collect();
    let more = match unreadable.len() - shown.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!(
        "; class files that cannot be read: {}{more}",
        shown.join("; ")
    )
}
