//! Pods that were scored and have not been seen on a node yet. The scheduler does not
//! inform an extender of the node that it chose: the best one is assumed, and only
//! scores depend on this assumption.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Asks;

/// How long an assumption is kept: several times the duration of a binding.
pub(super) const LIFETIME: Duration = Duration::from_secs(15);

/// The maximum number of assumptions; the oldest ones are dropped first.
pub(super) const MAX_ASSUMED: usize = 10_000;

/// The assumptions, by the pods' uids.
#[derive(Debug, Default)]
pub(super) struct Assumptions {
    by_uid: HashMap<Arc<str>, Assumption>,
    /// The oldest first. An entry whose time is not that of its pod is outdated.
    order: VecDeque<(Instant, Arc<str>)>,
}

#[derive(Debug)]
struct Assumption {
    node: Arc<str>,
    asks: Asks,
    made: Instant,
}

impl Assumptions {
    /// Adds an assumption, and returns those that were dropped for it.
    pub(super) fn add(
        &mut self,
        uid: &str,
        node: Arc<str>,
        asks: Asks,
        made: Instant,
    ) -> Vec<(Arc<str>, Asks)> {
        let uid: Arc<str> = uid.into();
        self.order.push_back((made, Arc::clone(&uid)));
        self.by_uid.insert(uid, Assumption { node, asks, made });
        let mut ended = Vec::new();
        while self.order.len() > MAX_ASSUMED {
            ended.extend(self.end_oldest());
        }
        ended
    }

    /// Drops the assumption about a pod.
    pub(super) fn remove(&mut self, uid: &str) -> Option<(Arc<str>, Asks)> {
        let assumption = self.by_uid.remove(uid)?;
        Some((assumption.node, assumption.asks))
    }

    /// Drops assumptions that are too old.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Arc<str>, Asks)> {
        let mut ended = Vec::new();
        while let Some((made, _)) = self.order.front()
            && now.saturating_duration_since(*made) >= LIFETIME
        {
            ended.extend(self.end_oldest());
        }
        ended
    }

    fn end_oldest(&mut self) -> Option<(Arc<str>, Asks)> {
        let (made, uid) = self.order.pop_front()?;
        let current = self.by_uid.get(&uid)?;
        (current.made == made).then_some(())?;
        self.remove(&uid)
    }
}
