//! GetPreferredAllocation: which of the free devices go well together.

use std::collections::BTreeSet;

use device_class::name::{ResourceName, excerpt};
use tonic::Status;

use crate::catalog::Resource;

/// A question that has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreferredError {
    /// There are not so many to choose from.
    #[error("{resource}: {wanted} of {available} available devices can't be chosen")]
    TooFew {
        /// The resource that was asked.
        resource: ResourceName,
        /// How many were wanted.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// More have to be in the answer than it may have.
    #[error("{resource}: {must} devices must be included in a choice of {wanted}")]
    TooMany {
        /// The resource that was asked.
        resource: ResourceName,
        /// How many have to be included.
        must: usize,
        /// How many were wanted.
        wanted: usize,
    },
    /// An id that has to be included and is not available.
    #[error("{resource}: `{id}` must be included but is not available")]
    NotAvailable {
        /// The resource that was asked.
        resource: ResourceName,
        /// The id, shortened if it is very long.
        id: String,
    },
}

impl From<PreferredError> for Status {
    fn from(error: PreferredError) -> Self {
        Status::invalid_argument(error.to_string())
    }
}

/// Chooses `size` of `available`, among them all of `must`. Ids that are not
/// in the resource any more are not chosen.
///
/// # Errors
/// There are too few, or `must` is not part of `available`.
pub fn preferred(
    resource: &Resource,
    available: &[String],
    must: &[String],
    size: usize,
) -> Result<Vec<String>, PreferredError> {
    let free: BTreeSet<usize> = available
        .iter()
        .filter_map(|id| resource.position(id))
        .collect();
    let mut chosen = BTreeSet::new();
    for id in must {
        let position = resource
            .position(id)
            .filter(|position| free.contains(position));
        chosen.insert(position.ok_or_else(|| PreferredError::NotAvailable {
            resource: resource.name.clone(),
            id: excerpt(id),
        })?);
    }
    if chosen.len() > size {
        let (resource, must) = (resource.name.clone(), chosen.len());
        return Err(PreferredError::TooMany {
            resource,
            must,
            wanted: size,
        });
    }
    if free.len() < size {
        let (resource, available) = (resource.name.clone(), free.len());
        return Err(PreferredError::TooFew {
            resource,
            wanted: size,
            available,
        });
    }
    let rest: Vec<usize> = free
        .difference(&chosen)
        .copied()
        .take(size - chosen.len())
        .collect();
    chosen.extend(rest);
    Ok(chosen
        .into_iter()
        .map(|position| resource.devices()[position].id.to_string())
        .collect())
}
