//! What a container requests, by its environment, its annotations and its hooks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::load::{self, ClassSource};
use device_class::name::{ClassName, excerpt};
use injection_plan::request::{ANNOTATION_PREFIX, RefusedRequest, Request, RequestSource};

use crate::authorization::SourceKind;
use crate::oci::hooks::by_class;
use crate::oci::{Attached, Bundle};
use crate::trust::Origin;

/// Where a container requests devices.
pub(crate) struct Requested<'b> {
    bundle: &'b Bundle,
    /// The annotations that count.
    annotations: Option<&'b BTreeMap<String, String>>,
    /// What CDI specifications grant of each class. Variables and annotations do not
    /// count for such a class.
    granted: BTreeMap<ClassName, String>,
}

/// A class that is named, and of which there is no file.
#[derive(Debug, thiserror::Error)]
pub enum UnknownClass {
    #[error(
        "annotation {ANNOTATION_PREFIX}{} names a class that this host does not have",
        excerpt(.0)
    )]
    Annotation(String),
    #[error(
        "a CDI specification grants devices of class {0}, which this host does not have; run \
         `boathook cdi generate`"
    )]
    Cdi(ClassName),
}

impl UnknownClass {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Annotation(name) => name,
            Self::Cdi(name) => name.as_str(),
        }
    }
}

impl<'b> Requested<'b> {
    /// Of a container whose origin is not certain no annotation counts.
    pub(crate) fn of(bundle: &'b Bundle, origin: Option<&'b Origin>) -> Self {
        Requested {
            bundle,
            annotations: origin.and_then(Origin::annotations),
            granted: by_class(&bundle.cdi),
        }
    }

    pub(crate) fn is_granted(&self, class: &ClassName) -> bool {
        self.granted.contains_key(class)
    }

    /// Whether the hook was called for what the container itself requests.
    pub(super) fn is_hooks(&self) -> bool {
        self.bundle.hooks.read_requests(None)
    }

    /// Whether there may be a request for the class of this file, which is not parsed.
    pub(crate) fn may_be_for(&self, source: &ClassSource) -> bool {
        self.is_granted(&source.name)
            || self.is_attached(&source.name)
            || self.names().any(|name| name == source.name.as_str())
            || source.mentions(|name| self.bundle.env.get(name).is_some())
    }

    /// Whether nothing is requested of the classes in these directories, by their indexes.
    pub(super) fn is_nothing(&self, directories: &[PathBuf]) -> bool {
        let names_none = self.granted.is_empty() && self.bundle.attached.is_empty();
        names_none
            && self.names().next().is_none()
            && load::none_has(directories, |name| self.bundle.env.get(name).is_some())
    }

    pub(crate) fn is_attached(&self, class: &ClassName) -> bool {
        let mut attached = self.bundle.attached.iter();
        attached.any(|attached| attached.grant.class == *class)
    }

    /// What is attached of a class: a request for each device.
    pub(crate) fn attached(
        &self,
        class: &DeviceClass,
    ) -> Result<Vec<(Request, SourceKind)>, RefusedRequest> {
        let of_class = |attached: &&Attached| attached.grant.class == class.name;
        let attached = self.bundle.attached.iter().filter(of_class);
        let requests = attached.map(|attached| {
            let devices = attached.grant.device.clone();
            let source = RequestSource::Attach { devices };
            let request = Request::parse(class, &self.bundle.env, source)?;
            let kind = match attached.forced {
                true => SourceKind::ForcedAttach,
                false => SourceKind::Attach,
            };
            Ok(request.map(|request| (request, kind)))
        });
        requests.filter_map(Result::transpose).collect()
    }

    /// What the container itself requests of a class, and where.
    pub(crate) fn request_for(
        &self,
        class: &DeviceClass,
    ) -> Result<Option<(Request, SourceKind)>, RefusedRequest> {
        let env = &self.bundle.env;
        let annotation = |key: &str| self.annotations?.get(key).map(String::as_str);
        let request = match self.granted.get(&class.name).cloned() {
            Some(devices) => Request::parse(class, env, RequestSource::Cdi { devices }),
            None => Request::of(class, env, annotation),
        };
        Ok(request?.map(|request| {
            let kind = match request.source {
                RequestSource::Cdi { .. } => SourceKind::Cdi,
                RequestSource::Annotation { .. } => SourceKind::Annotation,
                RequestSource::Env { .. } => SourceKind::Variable,
                RequestSource::Attach { .. } => SourceKind::Attach,
            };
            (request, kind)
        }))
    }

    /// The classes that annotations and CDI specifications name, but not `known`.
    pub(crate) fn unknown<'s>(
        &'s self,
        known: impl Iterator<Item = &'s ClassSource> + Clone,
    ) -> impl Iterator<Item = UnknownClass> {
        let is_known = move |name: &str| known.clone().any(|source| source.name.as_str() == name);
        let granted = self.granted.keys();
        let granted = granted.map(|name| (name.as_str(), UnknownClass::Cdi(name.clone())));
        let annotated = self.names();
        annotated
            .map(|name| (name, UnknownClass::Annotation(name.to_owned())))
            .chain(granted)
            .filter_map(move |(name, unknown)| (!is_known(name)).then_some(unknown))
    }

    /// The classes that annotations name.
    fn names(&self) -> impl Iterator<Item = &str> {
        let keys = self.annotations.into_iter().flat_map(BTreeMap::keys);
        keys.filter_map(|key| key.strip_prefix(ANNOTATION_PREFIX))
    }
}
