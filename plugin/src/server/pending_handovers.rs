//! Counts the resources for which an earlier instance of the plugin must not end yet.

use tokio::sync::watch;

/// The number of resources for which the kubelet would notice the end of an earlier instance of the
/// plugin, and refuse pods (see [`super::instance`]). All clones share one number.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingHandovers(watch::Sender<usize>);

impl PendingHandovers {
    pub(crate) fn is_empty(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Counts a resource until the returned guard is dropped.
    pub(super) fn add(&self) -> PendingHandoverGuard {
        self.0.send_modify(|count| *count += 1);
        PendingHandoverGuard(self.clone())
    }
}

#[derive(Debug)]
pub(super) struct PendingHandoverGuard(PendingHandovers);

impl Drop for PendingHandoverGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
