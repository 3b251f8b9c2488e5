//! The reasons for refusing a request.

use device_class::discover::Device;
use device_class::name::{CapabilityName, ClassName, DeviceId, NameError, excerpt};

use super::variables::MAX_FILE_LISTS;
use super::{MAX_AWAITED_DEVICES, MAX_REQUEST_BYTES};
use crate::requirement::RequirementError;

/// The maximum number of unhealthy devices that a message lists with their reasons.
const MAX_LISTED_DEVICES: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("{length} bytes is too long; a request may have at most {MAX_REQUEST_BYTES}")]
    TooLong { length: usize },
    #[error("`{}` is neither a device nor a range such as 0-3; separate several with commas", excerpt(.0))]
    MalformedItem(String),
    #[error(
        "`{}` begins with a quote that does not end it; write \"NAME\", and two quotes for one in \
         the name",
        excerpt(.0)
    )]
    UnfinishedQuotes(String),
    #[error(
        "`{first}-{last}` ends before it begins; write {last}-{first}, or \"{first}-{last}\" for the \
         device with this name"
    )]
    BackwardsRange { first: u32, last: u32 },
    /// A list with `all` has an item such as `-1` or `!1`, which seems to leave out a device.
    #[error(
        "`{}` leaves out no device; name those that the container is to have, or hide one from all \
         containers (`except` in config.toml)",
        excerpt(.0)
    )]
    Exclusion(String),
    #[error(
        "`{}` is of the kind {}, which is not a resource of the class; write {}",
        excerpt(item),
        excerpt(kind),
        describe_form_without_kind(item)
    )]
    OtherKind { item: String, kind: String },
    /// The item has a form that other programs understand, such as the pattern `/dev/ttyUSB*`.
    #[error("`{}` {advice}", excerpt(.item))]
    UnsupportedForm {
        item: String,
        /// The rest of the message. It says what the item is and which name the user should write.
        advice: String,
    },
    /// The container sets a variable for a feature of the vendor's software that Boathook does not
    /// support. If Boathook ignored the variable, the container would get other devices than it
    /// expects.
    #[error("{variable} is set, which is not supported; {advice}")]
    UnsupportedVariable { variable: String, advice: String },
    #[error(
        "capability {capability} is forbidden on this host by `forbid` in [class.{class}] of \
         config.toml; request only others"
    )]
    ForbiddenCapability {
        class: ClassName,
        capability: CapabilityName,
    },
    #[error("{name} is set without {missing_name}")]
    UnpairedVariable {
        name: String,
        /// The name of the other variable of the pair, which is not set.
        missing_name: String,
    },
    /// The value of a variable is not a valid name. The variable belongs to a variable pair, or it
    /// requests file lists.
    #[error(transparent)]
    Name(NameError),
    #[error("{count} lists of files are too many; a container may name {MAX_FILE_LISTS}")]
    TooManyLists { count: usize },
    #[error(
        "{}={} cannot be met (to start it nevertheless, set {disable_settings})",
        excerpt(.env),
        excerpt(.text)
    )]
    Requirement {
        env: String,
        text: String,
        /// The settings that disable this check, as text for the message.
        disable_settings: String,
        #[source]
        error: Box<RequirementError>,
    },
    #[error("class {class} has no device `{}` on this host; {known_devices}", excerpt(.name))]
    UnknownDevice {
        class: ClassName,
        name: String,
        /// The devices of the class on this host, as text for the message.
        known_devices: String,
    },
    #[error("{} names no device of class {class} on this host: {reason}", excerpt(.path))]
    UnknownPath {
        class: ClassName,
        path: String,
        /// The reason why the path names no device, and the devices of the class on this host, as
        /// text for the message.
        reason: String,
        /// Whether the host has no file at `path`.
        is_absent: bool,
    },
    #[error(
        "{} is a node of several devices, {}; name one of them by its id",
        excerpt(.path),
        excerpt(.devices)
    )]
    SharedPath { path: String, devices: String },
    /// The item has a form that only the option `--device` of engines accepts: it has an access
    /// mode, quotes around both paths, or a path outside of /dev.
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
    InvalidContainerPath { path: String, reason: &'static str },
    /// The item has its `?` before the path in the container, as in `NAME?:/dev/x`. The `?` must be
    /// at the end of the item.
    #[error("the `?` of `{}` is not at its end; write {}", excerpt(.item), excerpt(.corrected_item))]
    MisplacedMark {
        item: String,
        corrected_item: String,
    },
    /// The item sets one path in the container but stands for several device nodes.
    #[error("`{}` is {meaning}, and {} is for one of them", excerpt(.item), excerpt(.path))]
    SeveralNodesForPath {
        item: String,
        path: String,
        /// The devices or nodes that the item stands for, as text for the message.
        meaning: String,
    },
    #[error(
        "`{}?` is an index or a range, which means other devices when one comes or goes: write the \
         id, alias or path of the device, or \"{}\"? if this is one",
        excerpt(.0),
        excerpt(.0)
    )]
    AwaitedIndex(String),
    #[error(
        "it names {count} devices that may come later; a container may wait for {MAX_AWAITED_DEVICES}"
    )]
    TooManyAwaitedDevices { count: usize },
    #[error("{}? may come later, and {requester} gives what is there; write it without `?`", excerpt(.item))]
    CannotWait {
        item: String,
        /// The source of the request, which cannot wait for a device, as text for the message. For
        /// example, it is "a CDI specification".
        requester: &'static str,
    },
    /// An item sets a path in the container, but `requester` cannot choose paths: another program
    /// sets the paths of the device nodes.
    #[error(
        "{} is requested at {} in the container, which {requester} cannot keep; write it without the \
         path, or a class with `container_path`",
        excerpt(.item),
        excerpt(.path)
    )]
    UnsupportedContainerPath {
        item: String,
        path: String,
        /// The source of the request, which cannot choose paths in the container, as text for the
        /// message.
        requester: &'static str,
    },
    /// The request is `all`, and no device of the class is healthy.
    #[error(
        "no device of class {class} on this host is healthy, so that `all` would give none: \
         {reasons}; a device that is named is given nevertheless"
    )]
    NoHealthyDevice {
        class: ClassName,
        /// The devices, each with the reason why it is unhealthy, as text for the message.
        reasons: String,
    },
    /// The container has an annotation with the devices that the device plugin allocated to it. But
    /// the kubelet checkpoint lists other devices for the container, or none.
    #[error("devices of class {class} were allocated to {holder}, but {reason}")]
    DevicesNotRecorded {
        class: ClassName,
        holder: String,
        /// The difference between the annotation and the kubelet checkpoint, as text for the
        /// message.
        reason: String,
    },
    /// A user attaches a device to a container of a pod with `boathook attach`, but the kubelet did
    /// not allocate the device to this container.
    #[error(
        "the kubelet did not allocate them to {holder}; --force attaches them nevertheless, and \
         the kubelet may give them to others"
    )]
    NotAllocated { holder: String },
    /// Neither the kubelet, the configuration nor the user authorizes the request. The container
    /// must not start at all, because the engine has already added the nodes of the CDI devices to
    /// it.
    #[error("it may have no devices of class {class}: {reason}")]
    UnauthorizedRequest { class: ClassName, reason: String },
    /// The request lists a capability that the class does not have, and the class file
    /// refuses unknown capabilities.
    #[error("`{name}` is not an option of the class; there are {known_capabilities}")]
    UnknownCapability {
        name: String,
        known_capabilities: String,
    },
    /// The class has none of the requested capabilities. The request is refused, because the
    /// container would get the devices without the libraries that they need.
    #[error(
        "{request} names no capability of class {class}, which has {known_capabilities}; separate \
         several with commas"
    )]
    NoCapability {
        class: ClassName,
        /// The variable that lists capabilities, as `NAME=value` for the message.
        request: String,
        /// The capabilities of the class, as text for the message.
        known_capabilities: String,
    },
    /// A container of a pod requests a trusted capability (`trusted_capabilities` of the class).
    /// Only pods that the configuration lists as trusted may have such a capability.
    #[error(
        "it may not have {capability} of class {class}: in a pod this is for those that \
         trusted_pods lists"
    )]
    UntrustedCapability {
        class: ClassName,
        capability: CapabilityName,
    },
    /// A container outside of pods requests a trusted capability, but does not have CAP_SYS_ADMIN
    /// in its bounding set. The request alone is not enough, because it may come from a variable of
    /// the image instead of the user who starts the container.
    #[error(
        "it may not have {capability} of class {class} without CAP_SYS_ADMIN in its config.json: \
         start it with `--privileged` or `--cap-add SYS_ADMIN`, or do not request {capability}"
    )]
    MissingSysAdmin {
        class: ClassName,
        capability: CapabilityName,
    },
    #[error(
        "device {id} of class {class} was allocated to the container but is not on this host any \
         more; delete the pod, so that it is scheduled again"
    )]
    AllocatedDeviceMissing { class: ClassName, id: DeviceId },
}

impl RequestError {
    /// Returns the error for the request `all` of a class that has devices, but no healthy one.
    pub(crate) fn from_unhealthy_devices<'d>(
        class: &ClassName,
        devices: impl IntoIterator<Item = &'d Device>,
    ) -> Self {
        let mut devices = devices.into_iter();
        let listed_devices = devices.by_ref().take(MAX_LISTED_DEVICES);
        let mut reasons: Vec<String> = listed_devices
            .map(|device| format!("{} is {}", device.id, device.health))
            .collect();
        match devices.count() {
            0 => {}
            omitted_count => reasons.push(format!("and {omitted_count} more")),
        }
        RequestError::NoHealthyDevice {
            class: class.clone(),
            reasons: reasons.join("; "),
        }
    }

    /// Returns whether a class that ignores unknown devices ignores this error as well. The errors
    /// listed here are always reported: the form of the item or the number of devices is wrong, the
    /// path stands for several devices, or no device is healthy.
    pub(super) fn is_unknown_device(&self) -> bool {
        !matches!(
            self,
            Self::ContainerPath { .. }
                | Self::InvalidContainerPath { .. }
                | Self::SeveralNodesForPath { .. }
                | Self::UnsupportedContainerPath { .. }
                | Self::TooManyAwaitedDevices { .. }
                | Self::SharedPath { .. }
                | Self::NoHealthyDevice { .. }
        )
    }
}

/// The error of a refused request, and the source of this request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{requested_by}")]
pub struct RefusedRequest {
    /// The source of the request ([`super::RequestSource`]), as text for messages.
    pub requested_by: String,
    #[source]
    pub error: RequestError,
}

/// Returns the item without its CDI kind, for advice in a message. The result is the device alone,
/// or the device and its path in the container. If a message cannot quote this text unchanged, the
/// result describes it in words.
fn describe_form_without_kind(item: &str) -> String {
    let (form, description) = match item.rsplit_once('=') {
        Some((device, path)) if path.starts_with('/') => {
            (format!("{device}:{path}"), "`:` in place of the last `=`")
        }
        Some((_, device)) => (device.to_owned(), "only what follows the last `=`"),
        None => return excerpt(item),
    };
    if excerpt(&form) == form {
        form
    } else {
        description.to_owned()
    }
}
