//! From a request to its plan, for the tests of plans.

use device_class::discover;
use device_class::{DeviceClass, HostView};
use injection_plan::plan::{self, Asked, Authority, InjectionPlan, SpecDevices};
use injection_plan::request::Request;

/// The plan for a container with this request; or why it is refused.
pub(crate) fn plan(
    class: &DeviceClass,
    request: &Request,
    host: &dyn HostView,
    authority: &Authority,
) -> Result<InjectionPlan, String> {
    let found = discover::look_up(class, request.wanted(), host);
    let asked = Asked {
        class,
        request,
        found: &found.map_err(with_causes)?,
        authority,
    };
    plan::plan(&[asked], &SpecDevices::default()).map_err(with_causes)
}

pub(crate) fn with_causes(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// The request authorizes itself, as outside Kubernetes.
pub(crate) fn asker() -> Authority {
    let why = "this is a test".into();
    Authority::Asker { why }
}
