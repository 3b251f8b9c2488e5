//! Pauses the device scans of this instance while a newer instance of the plugin serves all
//! resources.

use tokio::sync::watch;

/// Decides whether this process scans for devices. It does not while a newer instance of the plugin
/// serves all resources. All clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanPause(watch::Sender<ServerCounts>);

/// The numbers of this process's gRPC servers, of which each serves one resource. Scans are paused
/// while a newer instance serves the resources of all of them.
#[derive(Debug, Default)]
struct ServerCounts {
    total_count: usize,
    /// The number of servers whose resources a newer instance serves.
    replaced_count: usize,
}

impl ServerCounts {
    fn should_scan(&self) -> bool {
        self.replaced_count == 0 || self.replaced_count < self.total_count
    }
}

impl ScanPause {
    /// Counts a server of this instance until the returned guard is dropped.
    pub(crate) fn add_server(&self) -> ServerGuard {
        self.0.send_modify(|counts| counts.total_count += 1);
        ServerGuard(self.clone())
    }

    /// Counts a server whose resource a newer instance serves, until the returned guard is dropped.
    pub(crate) fn add_replaced_server(&self) -> ScanPauseGuard {
        self.0.send_modify(|counts| counts.replaced_count += 1);
        ScanPauseGuard(self.clone())
    }

    /// Waits until this process may scan. Returns at once unless a newer instance of the plugin
    /// serves the resources of all servers.
    pub(super) async fn wait_for_end(&self) {
        // The result is ignored: this value owns the sender, so the channel cannot be closed.
        let _ = self.0.subscribe().wait_for(ServerCounts::should_scan).await;
    }
}

#[derive(Debug)]
pub(crate) struct ScanPauseGuard(ScanPause);

impl Drop for ScanPauseGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.replaced_count -= 1);
    }
}

#[derive(Debug)]
pub(crate) struct ServerGuard(ScanPause);

impl Drop for ServerGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|counts| counts.total_count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_pause_only_if_each_server_has_a_pause() {
        let pause = ScanPause::default();
        let should_scan = || pause.0.borrow().should_scan();
        assert!(should_scan(), "the first scan is before the first server");
        let (_one, other) = (pause.add_server(), pause.add_server());
        let first = pause.add_replaced_server();
        assert!(should_scan());
        let second = pause.add_replaced_server();
        assert!(!should_scan());
        drop(second);
        assert!(should_scan());
        drop(other);
        assert!(!should_scan(), "only the server with a pause is left");
        drop(first);
        assert!(should_scan());
    }
}
