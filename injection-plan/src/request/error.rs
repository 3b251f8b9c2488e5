//! The reasons for which a request is refused.

use device_class::discover::Device;
use device_class::name::{CapabilityName, ClassName, DeviceId, NameError, excerpt};

use super::variables::MAX_LISTS;
use super::{MAX_AWAITED, MAX_REQUEST};
use crate::requirement::RequirementError;

/// The maximum number of unhealthy devices whose reasons a message lists.
const MAX_REASONS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("{length} bytes is too long; a request may have at most {MAX_REQUEST}")]
    TooLong { length: usize },
    #[error("`{}` is neither a device nor a range such as 0-3; separate several with commas", excerpt(.0))]
    Malformed(String),
    #[error(
        "`{}` begins with a quote that does not end it; write \"NAME\", and two quotes for one in \
         the name",
        excerpt(.0)
    )]
    Unquoted(String),
    #[error("`{first}-{last}` ends before it begins; write {last}-{first}")]
    Backwards { first: u32, last: u32 },
    #[error(
        "`{}` is of the kind {}, which is not a resource of the class",
        excerpt(item),
        excerpt(kind)
    )]
    OtherKind { item: String, kind: String },
    /// The container sets a variable that asks the vendor's stack for a feature that
    /// Boathook does not have. The container would get other devices than it expects.
    #[error("{env} is set, which is not supported; {advice}")]
    Unsupported { env: String, advice: String },
    #[error(
        "capability {capability} is forbidden on this host by `forbid` in [class.{class}] of \
         config.toml; request only others"
    )]
    Forbidden {
        class: ClassName,
        capability: CapabilityName,
    },
    #[error("{env} is set without {partner}")]
    Unpaired {
        env: String,
        /// The variable of the pair that is missing.
        partner: String,
    },
    /// A variable of a pair, or the variable that names lists of files, has an invalid
    /// value.
    #[error(transparent)]
    Name(NameError),
    #[error("{count} lists of files are too many; a container may name {MAX_LISTS}")]
    TooManyLists { count: usize },
    #[error(
        "{}={} cannot be met (to start it nevertheless, set {way_out})",
        excerpt(.env),
        excerpt(.text)
    )]
    Requirement {
        env: String,
        text: String,
        /// The settings that switch the check off, as text.
        way_out: String,
        #[source]
        error: Box<RequirementError>,
    },
    #[error("class {class} has no device `{}` on this host; {known}", excerpt(.wanted))]
    Unknown {
        class: ClassName,
        wanted: String,
        /// The devices of the class on this host, as text.
        known: String,
    },
    #[error("{} names no device of class {class} on this host: {reason}", excerpt(.path))]
    UnknownPath {
        class: ClassName,
        path: String,
        /// The reason, and the devices of the class on this host, as text.
        reason: String,
        /// Whether the host has nothing at this path.
        is_absent: bool,
    },
    #[error(
        "{} is a node of several devices, {}; name one of them by its id",
        excerpt(.path),
        excerpt(.devices)
    )]
    SharedPath { path: String, devices: String },
    /// The item has a form of the engines' `--device` option that a request does not have: with
    /// an access mode, with quotes around both paths, or with a path outside of /dev.
    #[error(
        "`{}` is not a form that a request has; write {}, or {}:/dev/NAME for another path below \
         /dev in the container; how a container may use a device is in the class",
        excerpt(.item),
        excerpt(.host),
        excerpt(.host)
    )]
    ContainerPath { item: String, host: String },
    #[error(
        "{} cannot be the path of a device in the container: {reason}",
        excerpt(.path)
    )]
    BadContainerPath { path: String, reason: &'static str },
    /// A path in the container is for one node, and the item means several.
    #[error("`{}` is {meant}, and {} is for one of them", excerpt(.item), excerpt(.path))]
    SeveralForPath {
        item: String,
        path: String,
        /// The devices or nodes that the item means, and what to write, as text.
        meant: String,
    },
    #[error(
        "`{}?` is an index or a range, which means other devices when one comes or goes: write the \
         id, alias or path of the device, or \"{}\"? if this is one",
        excerpt(.0),
        excerpt(.0)
    )]
    WaitsForIndex(String),
    #[error(
        "it names {count} devices that this host does not have; a container may wait for {MAX_AWAITED}"
    )]
    TooManyAwaited { count: usize },
    #[error("{}? may come later, and {requester} gives what is there; write it without `?`", excerpt(.item))]
    CannotWait {
        item: String,
        /// The requester, which cannot wait, as text for the message.
        requester: &'static str,
    },
    /// A request whose devices others choose, or make in the container, has a path.
    #[error(
        "{} is requested at {} in the container, which {requester} cannot keep; write it without the \
         path, or a class with `container_path`",
        excerpt(.item),
        excerpt(.path)
    )]
    UnkeptContainerPath {
        item: String,
        path: String,
        /// The requester, which cannot keep the path, as text for the message.
        requester: &'static str,
    },
    /// All devices are requested, and no device is healthy.
    #[error(
        "no device of class {class} on this host is healthy, so that `all` would give none: \
         {reasons}; a device that is named is given nevertheless"
    )]
    NoneHealthy {
        class: ClassName,
        /// The devices, each with the reason why it is unhealthy, as text.
        reasons: String,
    },
    /// The container has the annotation of an allocation, but the kubelet recorded other
    /// devices for it, or none.
    #[error("devices of class {class} were allocated to {holder}, but {reason}")]
    Unrecorded {
        class: ClassName,
        holder: String,
        /// The difference between the annotation and the kubelet's record, as text.
        reason: String,
    },
    /// A user attaches a device to a container of a pod, and the kubelet did not allocate
    /// the device to this container.
    #[error(
        "the kubelet did not allocate them to {holder}; --force attaches them nevertheless, and \
         the kubelet may give them to others"
    )]
    NotAllocated { holder: String },
    /// Nobody permits the request, and the container cannot start without the devices,
    /// because the engine has already added CDI devices to it.
    #[error("it may have no devices of class {class}: {reason}")]
    Unauthorized { class: ClassName, reason: String },
    /// The request names a capability that the class does not have, and the class file
    /// refuses unknown capabilities.
    #[error("`{name}` is not an option of the class; there are {known}")]
    UnknownCapability { name: String, known: String },
    /// None of the requested capabilities belongs to the class. The container would get
    /// devices without the libraries that they need.
    #[error(
        "{list} names no capability of class {class}, which has {known}; separate several with \
         commas"
    )]
    NoCapability {
        class: ClassName,
        /// The variable and its value, as text.
        list: String,
        /// The capabilities of the class, as text.
        known: String,
    },
    /// A container of a pod requests a trusted capability. Only a container whose request
    /// itself is the authority may have a trusted capability.
    #[error(
        "it may not have {capability} of class {class}: in a pod this is for those that \
         trusted_pods lists"
    )]
    Untrusted {
        class: ClassName,
        capability: CapabilityName,
    },
    /// A container outside of a pod requests a trusted capability without CAP_SYS_ADMIN. The
    /// request may come from a variable of the image, so it does not show that the user who
    /// starts the container permits the capability.
    #[error(
        "it may not have {capability} of class {class} without CAP_SYS_ADMIN in its config.json: \
         start it with `--privileged` or `--cap-add SYS_ADMIN`, or do not request {capability}"
    )]
    NoSysAdmin {
        class: ClassName,
        capability: CapabilityName,
    },
    #[error(
        "device {id} of class {class} was allocated to the container but is not on this host any \
         more; delete the pod, so that it is scheduled again"
    )]
    Lost { class: ClassName, id: DeviceId },
}

impl RequestError {
    /// Returns the error of a request for all of `devices`, which are all unhealthy.
    pub(crate) fn none_healthy<'d>(
        class: &ClassName,
        devices: impl IntoIterator<Item = &'d Device>,
    ) -> Self {
        let mut devices = devices.into_iter();
        let shown = devices.by_ref().take(MAX_REASONS);
        let mut reasons: Vec<String> = shown
            .map(|device| format!("{} is {}", device.id, device.health))
            .collect();
        match devices.count() {
            0 => {}
            further => reasons.push(format!("and {further} more")),
        }
        RequestError::NoneHealthy {
            class: class.clone(),
            reasons: reasons.join("; "),
        }
    }

    /// Returns whether the error is about a device that the host does not have. Some class
    /// files ignore unknown devices.
    pub(super) fn is_of_unknown(&self) -> bool {
        !matches!(
            self,
            Self::ContainerPath { .. }
                | Self::BadContainerPath { .. }
                | Self::SeveralForPath { .. }
                | Self::UnkeptContainerPath { .. }
                | Self::TooManyAwaited { .. }
                | Self::SharedPath { .. }
                | Self::NoneHealthy { .. }
        )
    }
}

/// A request that cannot be met, and its source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{requested_by}")]
pub struct RefusedRequest {
    /// The request's [`super::RequestSource`], as text.
    pub requested_by: String,
    #[source]
    pub error: RequestError,
}
