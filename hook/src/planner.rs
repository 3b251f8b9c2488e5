//! From a container's requests to the plan for it.

mod requested;

use std::io;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::{Claimed, Claims};
use device_class::config::Config;
use device_class::discover::{self, Found, LookUpError};
use device_class::host::RealHost;
use device_class::load;
use device_class::strict_toml::FileError;
use injection_plan::plan::{self, Asked, Authority, InjectionPlan, PlanError};
use injection_plan::request::{RefusedRequest, Request};

use crate::authorization::{Decision, SourceKind, authorize, counts};
use crate::exit::ExitCode;
use crate::oci::Bundle;
use crate::trust::{self, Origin, OriginError, TrustError};

pub use crate::authorization::Caller;
pub(crate) use requested::Requested;
pub use requested::UnknownClass;

#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    #[error(transparent)]
    Class(#[from] FileError),
    #[error(transparent)]
    SameEnv(#[from] Claimed),
    #[error("{unknown}{}", beside(unreadable))]
    UnknownClass {
        unknown: UnknownClass,
        /// The class files of the host that cannot be read.
        unreadable: Vec<FileError>,
    },
    #[error("host_root {} cannot be opened", path.display())]
    HostRoot {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error(transparent)]
    Trust(#[from] TrustError),
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

/// A request, with the class that it is for.
struct ClassRequest {
    class: DeviceClass,
    request: Request,
    source: SourceKind,
}

#[derive(Default)]
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
    let requested = Requested::of(bundle, origin.as_ref().ok());
    let Requests { wanted, unreadable } = requests(&requested, caller, config)?;
    let mut plan = match origin {
        Ok(origin) if !wanted.is_empty() => plan_of(&wanted, bundle, &origin, caller, config)?,
        Ok(_) => InjectionPlan::default(),
        // A container that requests nothing is not stopped because its origin is uncertain.
        Err(error) => {
            let facts = trust::facts(bundle, None, &[], &config.trust);
            let annotated = trust::may_be_annotated(bundle).then_some(SourceKind::Annotation);
            let mut sources = wanted.iter().map(|it| it.source).chain(annotated);
            let is_refused =
                |source| matches!(authorize(caller, source, &facts), Decision::Refused(_));
            if sources.any(is_refused) {
                return Err(error.into());
            }
            InjectionPlan::default()
        }
    };
    plan.env.retain(|name, _| bundle.env.get(name).is_none());
    let unreadable = unreadable
        .iter()
        .map(|error| format!("class left out: {error}"));
    plan.warnings.extend(unreadable);
    Ok(plan)
}

/// Whether a container certainly requests nothing.
pub fn requests_nothing(bundle: &Bundle, caller: &Caller, config: &Config) -> bool {
    let origin = Origin::of(bundle);
    let requested = Requested::of(bundle, origin.as_ref().ok());
    let requests = requests(&requested, caller, config);
    !trust::may_be_annotated(bundle) && requests.is_ok_and(|requests| requests.wanted.is_empty())
}

fn plan_of(
    wanted: &[ClassRequest],
    bundle: &Bundle,
    origin: &Origin,
    caller: &Caller,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let host = open_host(config)?;
    let mut authorized = Vec::new();
    for it in wanted {
        if let Some(authority) = authority(&it.class, it.source, bundle, origin, caller, config)? {
            authorized.push((it, authority));
        }
    }
    let found = authorized
        .iter()
        .map(|(it, _)| discover::look_up(&it.class, it.request.wanted(), &host));
    let found = found.collect::<Result<Vec<Found>, _>>()?;
    let asked = authorized
        .iter()
        .zip(&found)
        .map(|((wanted, authority), found)| Asked {
            class: &wanted.class,
            request: &wanted.request,
            found,
            authority,
        });
    Ok(plan::plan(
        &asked.collect::<Vec<_>>(),
        &bundle.spec_devices,
    )?)
}

/// Who authorizes a request for devices of a class; `None`: it does not count.
fn authority(
    class: &DeviceClass,
    source: SourceKind,
    bundle: &Bundle,
    origin: &Origin,
    caller: &Caller,
    config: &Config,
) -> Result<Option<Authority>, TrustError> {
    let trusted_pods = &class.settings.trusted_pods;
    let facts = trust::facts(bundle, Some(origin), trusted_pods, &config.trust);
    let decision = authorize(caller, source, &facts);
    trust::authority(decision, origin, &class.name, bundle, &config.trust)
}

/// A class, and what the host has of it, for who plans for many containers.
pub(crate) struct LookedUp {
    pub(crate) class: DeviceClass,
    pub(crate) found: Found,
}

/// The plan for what is attached to a container, of classes that were looked up before.
pub(crate) fn plan_attached<'l>(
    bundle: &Bundle,
    classes: impl IntoIterator<Item = &'l LookedUp>,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let origin = Origin::of(bundle)?;
    let requested = Requested::of(bundle, Some(&origin));
    let mut wanted = Vec::new();
    for one in classes {
        for (request, source) in requested.attached(&one.class)? {
            let caller = &Caller::Attach;
            let authority = authority(&one.class, source, bundle, &origin, caller, config)?;
            wanted.extend(authority.map(|authority| (one, request, authority)));
        }
    }
    let asked = wanted.iter().map(|(one, request, authority)| Asked {
        class: &one.class,
        request,
        found: &one.found,
        authority,
    });
    Ok(plan::plan(
        &asked.collect::<Vec<_>>(),
        &bundle.spec_devices,
    )?)
}

pub fn open_host(config: &Config) -> Result<RealHost, PlannerError> {
    RealHost::open(&config.host_root).map_err(|error| PlannerError::HostRoot {
        path: config.host_root.clone(),
        error,
    })
}

fn requests(
    requested: &Requested<'_>,
    caller: &Caller,
    config: &Config,
) -> Result<Requests, PlannerError> {
    if *caller == Caller::Engine && requested.is_nothing(&config.classes) {
        return Ok(Requests::default());
    }
    let (mut sources, mut unreadable) = (Vec::new(), Vec::new());
    for source in load::each_source(&config.classes)? {
        match source {
            Ok(source) => sources.push(source),
            Err(error) => unreadable.push(error),
        }
    }
    if let Some(unknown) = requested.unknown(sources.iter()).next() {
        return Err(without_class(unknown, unreadable));
    }
    let mut wanted: Vec<ClassRequest> = Vec::new();
    let mut claims = Claims::default();
    for source in sources {
        let is_granted = requested.is_granted(&source.name);
        let of_container = match is_granted {
            true => SourceKind::Cdi,
            false => SourceKind::Variable,
        };
        let has_hook = requested.is_hooks();
        let counts_own = counts(caller, of_container, has_hook);
        let counts_attached = counts(caller, SourceKind::Attach, has_hook);
        let is_asked = counts_own || counts_attached && requested.is_attached(&source.name);
        if !is_asked || !requested.may_be_for(&source) {
            continue;
        }
        let class = config.class(&source)?;
        if counts_attached {
            for (request, source) in requested.attached(&class)? {
                wanted.push(ClassRequest {
                    class: class.clone(),
                    request,
                    source,
                });
            }
        }
        let own = counts_own
            .then(|| requested.request_for(&class))
            .transpose()?;
        let Some((request, source)) = own.flatten() else {
            continue;
        };
        if !is_granted {
            claims.env(&class)?;
        }
        wanted.push(ClassRequest {
            class,
            request,
            source,
        });
    }
    Ok(Requests { wanted, unreadable })
}

/// Why a class cannot be used: its own file, if that cannot be read, and else that there
/// is none.
fn without_class(unknown: UnknownClass, mut unreadable: Vec<FileError>) -> PlannerError {
    let name = Some(unknown.name().as_ref());
    let is_its_own = |error: &FileError| error.path().file_stem() == name;
    match unreadable.iter().position(is_its_own) {
        Some(at) => unreadable.swap_remove(at).into(),
        None => PlannerError::UnknownClass {
            unknown,
            unreadable,
        },
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
