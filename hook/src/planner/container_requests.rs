//! Finds the devices that a container requests with its environment variables, its annotations and
//! its hooks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::load::{self, ClassSource};
use device_class::name::{ClassName, excerpt};
use device_class::strict_toml::FileError;
use injection_plan::request::{
    ANNOTATION_PREFIX, DeviceList, RefusedRequest, Request, RequestSource, Selection,
};

use crate::authorization::RequestSourceKind;
use crate::oci::hooks::group_grants_by_class;
use crate::oci::{AttachRequest, Bundle};
use crate::trust::ContainerOrigin;

/// The places in which a container's requests are found: its environment variables, its
/// annotations, and the CDI grants in the arguments of its hooks.
pub struct ContainerRequests<'b> {
    bundle: &'b Bundle,
    /// The annotations of the container that may request devices. The value is `None` if
    /// annotations must be ignored, for example because the container is in no pod.
    annotations: Option<&'b BTreeMap<String, String>>,
    /// The devices that CDI specifications grant, by class. For these classes, the container's
    /// variables and annotations are ignored.
    granted_devices: BTreeMap<ClassName, DeviceList>,
}

/// The advice to a user of Kubernetes whose pod requests a class that this host no longer has.
const POD_ADVICE: &str = "bring the class back (ConfigMap boathook-classes), or delete the pod, so that it is \
     scheduled again";

/// The error that a container requests a class for which this host has no class file.
#[derive(Debug, thiserror::Error)]
pub enum UnknownClass {
    #[error(
        "annotation {ANNOTATION_PREFIX}{} names a class that this host does not have; in Kubernetes \
         {POD_ADVICE}",
        excerpt(.0)
    )]
    Annotation(String),
    #[error(
        "a CDI specification grants devices of class {0}, which this host does not have any more; \
         in Kubernetes {POD_ADVICE}; elsewhere run `boathook cdi generate`"
    )]
    Cdi(ClassName),
}

impl<'b> ContainerRequests<'b> {
    /// Collects the requests in a bundle. `origin` says whether the container belongs to a pod. It
    /// is `None` if this is uncertain. Then the container's annotations are ignored.
    pub fn new(bundle: &'b Bundle, origin: Option<&'b ContainerOrigin>) -> Self {
        ContainerRequests {
            bundle,
            annotations: origin.and_then(ContainerOrigin::annotations),
            granted_devices: group_grants_by_class(&bundle.cdi_grants),
        }
    }

    pub(super) fn has_cdi_grant(&self, class: &str) -> bool {
        self.granted_devices
            .keys()
            .any(|name| name.as_str() == class)
    }

    /// Returns whether config.json has a hook that reads the container's environment variables and
    /// annotations.
    pub(super) fn has_request_hook(&self) -> bool {
        self.bundle.hooks.reads_requests(None)
    }

    /// Returns whether the container may request the class of this class file. If the result is
    /// false, the container certainly does not, and the file need not be parsed.
    pub fn may_request_class(&self, source: &ClassSource) -> bool {
        self.requests_class_by_name(source.name.as_str())
            || source.may_be_requested(|variable| self.bundle.env.get(variable).is_some())
    }

    /// Returns whether the container requests the class of `class_file`, a file with an error. Such
    /// a container must not start without its devices. `sources` are all class files on the host.
    pub fn requests_class_of_file(
        &self,
        class_file: &Path,
        sources: &[Result<ClassSource, FileError>],
        config: &Config,
    ) -> bool {
        let is_set = |variable: &str| {
            let value = self.bundle.env.get(variable);
            value.is_some_and(|value| !Selection::requests_nothing(value))
        };
        self.requests_class_by_name(class_name_of_file(class_file))
            || load::is_requested_by_variable(class_file, &config.classes, sources, is_set)
    }

    /// Returns whether an annotation, a CDI specification or `boathook attach` requests the class
    /// with this name.
    fn requests_class_by_name(&self, class: &str) -> bool {
        self.has_cdi_grant(class)
            || self.has_attach_request(class)
            || self.list_annotated_classes().any(|name| name == class)
    }

    /// Returns whether the container seems to request devices of some class. The caller asks this
    /// if the directory of class files cannot be read, so that it does not know the classes and
    /// their variables.
    pub(super) fn may_request_any_class(&self) -> bool {
        let env = &self.bundle.env;
        let is_set = |name: &str| {
            env.get(name)
                .is_some_and(|value| !Selection::requests_nothing(value))
        };
        let mut variables = env
            .names()
            .filter(|name| load::is_device_list_variable(name));
        !self.granted_devices.is_empty()
            || !self.bundle.attach_requests.is_empty()
            || self.list_annotated_classes().next().is_some()
            || variables.any(is_set)
    }

    pub(super) fn has_attach_request(&self, class: &str) -> bool {
        let mut attach_requests = self.bundle.attach_requests.iter();
        attach_requests.any(|request| request.grant.class.as_str() == class)
    }

    /// Returns the requests for devices of the class that users made with `boathook attach`, and
    /// for each whether the user gave `--force`.
    pub fn parse_attach_requests(
        &self,
        class: &DeviceClass,
    ) -> Result<Vec<(Request, RequestSourceKind)>, RefusedRequest> {
        let belongs_to_class =
            |attach_request: &&AttachRequest| attach_request.grant.class == class.name;
        let attach_requests = self.bundle.attach_requests.iter().filter(belongs_to_class);
        let requests = attach_requests.map(|attach_request| {
            let devices = attach_request.grant.devices.clone();
            let source = RequestSource::Attach { devices };
            let request = Request::parse(class, &self.bundle.env, source)?;
            let source_kind = if attach_request.is_forced {
                RequestSourceKind::ForcedAttach
            } else {
                RequestSourceKind::Attach
            };
            Ok(request.map(|request| (request, source_kind)))
        });
        requests.filter_map(Result::transpose).collect()
    }

    /// Returns the container's own request for devices of the class, and its source, such as an
    /// environment variable. A grant of a CDI specification takes the place of variables and
    /// annotations.
    pub fn find_container_request(
        &self,
        class: &DeviceClass,
    ) -> Result<Option<(Request, RequestSourceKind)>, RefusedRequest> {
        let env = &self.bundle.env;
        let find_annotation = |key: &str| self.annotations?.get(key).map(String::as_str);
        let request = match self.granted_devices.get(&class.name).cloned() {
            Some(devices) => Request::parse(class, env, RequestSource::Cdi { devices }),
            None => Request::find(class, env, find_annotation),
        };
        Ok(request?.map(|request| {
            let source_kind = match request.source {
                RequestSource::Cdi { .. } => RequestSourceKind::Cdi,
                RequestSource::Annotation { .. } => RequestSourceKind::Annotation,
                RequestSource::Env { .. } => RequestSourceKind::Variable,
                RequestSource::Attach { .. } => RequestSourceKind::Attach,
            };
            (request, source_kind)
        }))
    }

    /// Returns an error for each class that an annotation or a CDI specification requests although
    /// this host has no class file for it.
    pub fn find_unknown_classes(
        &self,
        sources: &[Result<ClassSource, FileError>],
    ) -> impl Iterator<Item = UnknownClass> {
        let class_files = sources.iter().map(class_file_path);
        let has_class_file = move |name: &str| {
            class_files
                .clone()
                .any(|class_file| class_name_of_file(class_file) == name)
        };
        let granted_classes = self
            .granted_devices
            .keys()
            .map(|name| (name.as_str(), UnknownClass::Cdi(name.clone())));
        let annotated_classes = self.list_annotated_classes();
        annotated_classes
            .map(|name| (name, UnknownClass::Annotation(name.to_owned())))
            .chain(granted_classes)
            .filter_map(move |(name, unknown_class)| {
                (!has_class_file(name)).then_some(unknown_class)
            })
    }

    /// Returns the names of the classes that the container requests with annotations, such as `npu`
    /// for the key `devices.boathook.dev/npu`.
    fn list_annotated_classes(&self) -> impl Iterator<Item = &str> {
        let keys = self.annotations.into_iter().flat_map(BTreeMap::keys);
        keys.filter_map(|key| key.strip_prefix(ANNOTATION_PREFIX))
    }
}

/// Returns the path of a class file, such as `npu.toml`, whether or not the file can be read.
pub fn class_file_path(source: &Result<ClassSource, FileError>) -> &Path {
    source
        .as_ref()
        .map_or_else(FileError::path, |source| &source.path)
}

/// Returns the name of the class in `class_file`, which is the file name without `.toml`: `npu` for
/// `npu.toml`.
pub(super) fn class_name_of_file(class_file: &Path) -> &str {
    let name = class_file.file_stem().and_then(OsStr::to_str);
    name.unwrap_or_default()
}
