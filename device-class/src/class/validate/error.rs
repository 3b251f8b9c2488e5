//! What can be wrong with several values of a class file together.

use crate::name::AttributeName;
use crate::strict_toml::BrokenRule;

/// A rule that a class file breaks although each of its values is right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassRuleError {
    /// A class without a source finds nothing.
    #[error("there is no [[discover]] table, so no device can ever be found")]
    NoSource,
    /// A source is a path or a count.
    #[error("a [[discover]] table has either `path` or `count`")]
    PathOrCount,
    /// The resource is none that the kubelet takes.
    #[error("{reason}")]
    Resource { resource: String, reason: String },
    /// A variable that containers have for something else.
    #[error(
        "`{0}` is a variable that containers have for another purpose; choose a name such as \
         MYCHIP_VISIBLE_DEVICES"
    )]
    ReservedVariable(String),
    /// Lists and their names go together.
    #[error("`files_listed_in` of [[edits]] goes with `lists_env` or `default_lists` of [request]")]
    Lists(&'static str),
    /// Where the walk to the NUMA node begins is no path.
    #[error("numa `{0}` is not the path of a device's directory in /sys")]
    Numa(String),
    /// What is wrong in one of several tables.
    #[error("{error}")]
    In {
        header: &'static str,
        /// Which of them it is, from 0.
        number: usize,
        error: Box<ClassRuleError>,
    },
    /// A template of `[[edits]]` uses an attribute of a device.
    #[error(
        "`{template}` uses the attribute `{name}`; [[edits]] are given once per container and use \
         the host's attributes only ({known}), so put what belongs to one device into [device]"
    )]
    DeviceAttribute {
        template: String,
        name: AttributeName,
        /// The attributes of the host.
        known: String,
    },
    /// A template names an attribute that no source sets.
    #[error("`{template}` uses the attribute `{name}`; known attributes are {known}")]
    UnknownAttribute {
        template: String,
        name: AttributeName,
        /// The attributes that could have been used.
        known: String,
    },
    /// A capability is used but no variable chooses among them.
    #[error("`{0}` is a capability, but [request] has no capabilities_env to choose it")]
    CapabilityWithoutEnv(String),
    /// A default capability that no edits have.
    #[error("the default capability `{0}` has no [[edits]] of its own")]
    UnknownCapability(String),
    /// A capability in `implies` that brings nothing.
    #[error("`implies` in [request] names `{0}`, which is not a capability of the class")]
    UnknownImplied(String),
    /// An index is either given or counted.
    #[error("[device] has either `index` or `order`, not both")]
    IndexAndOrder(String),
    /// The number of replicas is given twice.
    #[error("[sharing] has either `replicas` or `replicas_from`, not both")]
    ReplicasTwice(String),
    /// Devices are combined in two ways.
    #[error("[sharing] has either `combine` or `combine_by`, not both")]
    CombineTwice(String),
    /// A rule for replicas where there are none.
    #[error("[sharing] has `{0}`, but neither `replicas` nor `replicas_from`")]
    NoReplicas(&'static str),
    /// The major number of a node that is to be made is that of its driver.
    #[error(
        "a node with `make = {{ minor = \"{0}\" }}` needs `driver`, its driver's name in /proc/devices"
    )]
    MakeWithoutDriver(String),
    /// The id of a device that is followed changes.
    #[error(
        "with `follow = true` the id `{template}` may not have `{name}`, a number that changes when \
         a device is unplugged and comes back; use what is read of the device, such as its serial \
         number or its place on the bus"
    )]
    Followed {
        template: String,
        name: AttributeName,
    },
    /// Containers are told of devices that they do not follow.
    #[error("`{0} = true` needs `follow = true`: containers are told of devices that they follow")]
    AnnounceAlone(&'static str),
    /// `[[parts]]` and what belongs to it do not agree.
    #[error("{reason}")]
    Parts { text: String, reason: String },
    /// What is shown or copied is not in a directory that is masked.
    #[error("`{0}` is not in a directory of `masks`")]
    Unmasked(String),
}

impl BrokenRule for ClassRuleError {
    fn culprit(&self) -> Option<&str> {
        match self {
            ClassRuleError::NoSource => None,
            ClassRuleError::PathOrCount => Some("[[discover]]"),
            ClassRuleError::NoReplicas(key) | ClassRuleError::AnnounceAlone(key) => Some(key),
            ClassRuleError::Lists(key) => Some(key),
            ClassRuleError::In { error, .. } => error.culprit(),
            ClassRuleError::Resource { resource: text, .. }
            | ClassRuleError::Parts { text, .. }
            | ClassRuleError::ReservedVariable(text)
            | ClassRuleError::Numa(text)
            | ClassRuleError::DeviceAttribute { template: text, .. }
            | ClassRuleError::UnknownAttribute { template: text, .. }
            | ClassRuleError::Followed { template: text, .. }
            | ClassRuleError::CapabilityWithoutEnv(text)
            | ClassRuleError::UnknownCapability(text)
            | ClassRuleError::UnknownImplied(text)
            | ClassRuleError::IndexAndOrder(text)
            | ClassRuleError::ReplicasTwice(text)
            | ClassRuleError::CombineTwice(text)
            | ClassRuleError::MakeWithoutDriver(text)
            | ClassRuleError::Unmasked(text) => Some(text),
        }
    }

    fn table(&self) -> Option<(&str, usize)> {
        match self {
            ClassRuleError::In { header, number, .. } => Some((header, *number)),
            _ => None,
        }
    }
}

impl ClassRuleError {
    /// The same error of one of several tables.
    pub(super) fn in_table(self, header: &'static str, number: usize) -> Self {
        ClassRuleError::In {
            header,
            number,
            error: Box::new(self),
        }
    }

    /// The same error of `[[edits]]`, where the attributes of devices are not known.
    pub(super) fn of_edits(self) -> Self {
        match self {
            ClassRuleError::UnknownAttribute {
                template,
                name,
                known,
            } => ClassRuleError::DeviceAttribute {
                template,
                name,
                known,
            },
            other => other,
        }
    }
}
