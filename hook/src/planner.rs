//! From a container's requests to the plan for it.

mod requested;

use std::io;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::class::{Claimed, Claims};
use device_class::config::Config;
use device_class::discover::{self, Found, LookUpError};
use device_class::host::RealHost;
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;
use injection_plan::plan::{self, Asked, Authority, InjectionPlan, PlanError};
use injection_plan::request::{RefusedRequest, Request, RequestSource};

use crate::exit::ExitCode;
use crate::oci::{Bundle, CdiGrant};
use crate::trust::{self, Origin, OriginError, TrustError};

pub use requested::UnknownClass;
use requested::class_name;
pub(crate) use requested::{Requested, class_file};

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

/// Who has the plan made. It decides which requests count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// An engine that calls the hook for every container: variables and annotations
    /// count, but not for a class whose devices CDI specifications name.
    Engine,
    /// A hook of a CDI specification: only what specifications grant counts.
    Cdi(CdiGrant),
    /// A user who wants to see all of it.
    User,
    /// A user who changes a container that runs: only what the hook was called for counts.
    /// Nobody granted what the image of another container requests.
    Running,
    /// A user who attaches devices: only those count.
    Attach,
}

/// A request, with the class that it is for.
struct ClassRequest {
    class: DeviceClass,
    request: Request,
    /// Whether a user takes the responsibility for it.
    forced: bool,
}

#[derive(Default)]
struct Requests {
    wanted: Vec<ClassRequest>,
    /// Why classes cannot be used that the container does not request, as far as this was
    /// noticed. They do not keep it from starting.
    left_out: Vec<FileError>,
}

/// The plan for a container. One that requests nothing gets an empty plan, and no class is
/// parsed for it.
pub fn plan_for(
    bundle: &Bundle,
    caller: &Caller,
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let origin = Origin::of(bundle);
    let requested = Requested::of(bundle, origin.as_ref().ok());
    let Requests { wanted, left_out } = requests(&requested, caller, config)?;
    // A container that requests nothing is not stopped because its origin is uncertain.
    let mut plan = match origin {
        Err(error) if !wanted.is_empty() || trust::may_be_annotated(bundle) => {
            return Err(error.into());
        }
        Ok(origin) if !wanted.is_empty() => plan_of(&wanted, bundle, &origin, config)?,
        _ => InjectionPlan::default(),
    };
    plan.env.retain(|name, _| bundle.env.get(name).is_none());
    let left_out = left_out
        .iter()
        .map(|error| format!("class left out: {error}"));
    plan.warnings.extend(left_out);
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
    config: &Config,
) -> Result<InjectionPlan, PlannerError> {
    let host = open_host(config)?;
    let authorities = wanted
        .iter()
        .map(|it| authority(&it.class, &it.request, it.forced, bundle, origin, config));
    let authorities = authorities.collect::<Result<Vec<Authority>, _>>()?;
    let found = wanted
        .iter()
        .map(|it| discover::look_up(&it.class, it.request.wanted(), &host));
    let found = found.collect::<Result<Vec<Found>, _>>()?;
    let all = wanted.iter().zip(&found).zip(&authorities);
    let asked = all.map(|((wanted, found), authority)| Asked {
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

fn authority(
    class: &DeviceClass,
    request: &Request,
    forced: bool,
    bundle: &Bundle,
    origin: &Origin,
    config: &Config,
) -> Result<Authority, TrustError> {
    if matches!(request.source, RequestSource::Attach { .. })
        && let Some(authority) = trust::attaching(origin, forced)
    {
        return Ok(authority);
    }
    if let Some(authority) = trust::trusted(origin, &class.settings.trusted_pods) {
        return Ok(authority);
    }
    match request.source {
        RequestSource::Attach { .. } => {
            trust::by_records(origin, &class.name, bundle, &config.trust, false)
        }
        RequestSource::Cdi { .. } => {
            trust::cdi_authority(origin, &class.name, bundle, &config.trust)
        }
        RequestSource::Env { .. } | RequestSource::Annotation { .. } => {
            trust::authority(origin, &config.trust)
        }
    }
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
        for (request, forced) in requested.attached(&one.class)? {
            let authority = authority(&one.class, &request, forced, bundle, &origin, config)?;
            wanted.push((one, request, authority));
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
    let sources = load::each_source(&config.classes)?;
    if let Some(unknown) = requested.unknown(&sources).next() {
        let unreadable = sources.iter().filter_map(|source| source.clone().err());
        return Err(PlannerError::UnknownClass {
            unknown,
            unreadable: unreadable.collect(),
        });
    }
    let (mut wanted, mut left_out) = (Vec::new(), Vec::new());
    let mut claims = Claims::default();
    for source in &sources {
        let file = class_file(source);
        let is_granted = requested.is_granted(class_name(file));
        let counts = match caller {
            Caller::Engine => !is_granted,
            Caller::Cdi(_) => is_granted,
            Caller::User => true,
            Caller::Running => is_granted || requested.is_hooks(),
            Caller::Attach => false,
        };
        let may_be_for = |source: &ClassSource| requested.may_be_for(source);
        if !(counts || requested.is_attached(class_name(file)))
            || source.as_ref().is_ok_and(|source| !may_be_for(source))
        {
            continue;
        }
        let class = source.as_ref().map_err(FileError::clone);
        let class = match class.and_then(|source| config.class(source)) {
            Ok(class) => class,
            Err(error) if requested.is_stopped_by(file, &sources, config) => {
                return Err(error.into());
            }
            Err(error) => {
                left_out.push(error);
                continue;
            }
        };
        for (request, forced) in requested.attached(&class)? {
            wanted.push(ClassRequest {
                class: class.clone(),
                request,
                forced,
            });
        }
        let own = counts.then(|| requested.request_for(&class)).transpose()?;
        let Some(request) = own.flatten() else {
            continue;
        };
        if !is_granted {
            claims.env(&class)?;
        }
        wanted.push(ClassRequest {
            class,
            request,
            forced: false,
        });
    }
    Ok(Requests { wanted, left_out })
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
