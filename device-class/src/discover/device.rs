//! From a candidate to a device.

use std::io;
use std::path::{Path, PathBuf};

use super::{Device, FoundNode, edits, health, sharing, source, topology};
use crate::class::{DeviceClass, PathTemplateError};
use crate::host::HostView;
use crate::name::{DeviceId, NameError, ResourceName};
use crate::template::{Template, TemplateError};

/// Why a candidate is no device.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeviceError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Path(#[from] PathTemplateError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("`{0}` is not a number of replicas")]
    Replicas(String),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// The device that a candidate is.
pub(super) fn from_candidate(
    class: &DeviceClass,
    candidate: &source::Candidate,
    host: &dyn HostView,
) -> Result<Device, DeviceError> {
    let spec = &class.spec.device;
    let attributes = &candidate.attributes;
    let optional = |template: Option<&Template>| {
        template
            .map(|template| template.fill(attributes))
            .transpose()
    };
    let mut nodes: Vec<FoundNode> = Vec::new();
    for node in &spec.nodes {
        nodes.extend(edits::nodes(node, attributes, false, host)?);
    }
    let (health, readings) = health::of(&spec.health, &nodes, candidate, host);
    let id = spec.id.fill(attributes)?;
    let replicas = sharing::replicas(class.spec.sharing.as_ref(), attributes)?;
    let env = spec
        .env
        .iter()
        .map(|(name, value)| Ok((name.clone(), value.fill(attributes)?)));
    let aliases: Result<Vec<_>, _> = spec.aliases.iter().map(|a| a.fill(attributes)).collect();
    Ok(Device {
        id: match class.spec.sharing {
            None => DeviceId::from_hardware(&id)?,
            Some(_) => DeviceId::shared_from_hardware(&id)?,
        },
        resource: ResourceName::try_from(class.spec.resource.fill(attributes)?)?,
        index: optional(spec.index.as_ref().or(spec.order.as_ref()))?,
        replicas,
        aliases: aliases?
            .into_iter()
            .filter(|alias| !alias.is_empty())
            .collect(),
        health,
        readings,
        numa: match optional(spec.numa.as_ref())? {
            Some(start) => topology::numa_node(Path::new(&start), host),
            None => None,
        },
        group: optional(spec.group.as_ref())?,
        nodes,
        env: env.collect::<Result<_, DeviceError>>()?,
        attributes: attributes.clone(),
    })
}
