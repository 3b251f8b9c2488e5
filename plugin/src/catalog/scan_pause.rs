//! Pauses the device scans of this instance while a newer instance of the plugin serves all
//! resources.

use tokio::sync::watch;

/// The state of the pause. All clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanPause(watch::Sender<ServerCounts>);

#[derive(Debug, Default)]
struct ServerCounts {
    all: usize,
    /// The number of servers whose resources a newer instance serves.
    replaced_by_newer: usize,
}

impl ServerCounts {
    fn must_scan(&self) -> bool {
        self.replaced_by_newer == 0 || self.replaced_by_newer < self.all
    }
}

impl ScanPause {
    /// Counts a server until the guard is dropped.
    pub(crate) fn add_server(&self) -> ServerGuard {
        self.0.send_modify(|servers| servers.all += 1);
        ServerGuard(self.clone())
    }

    /// Marks the resource of one server as served by a newer instance, until the guard is dropped.
    pub(crate) fn start(&self) -> ScanPauseGuard {
        self.0.send_modify(|servers| servers.replaced_by_newer += 1);
        ScanPauseGuard(self.clone())
    }

    /// Waits until a newer instance does not serve every resource.
    pub(super) async fn wait_for_end(&self) {
        // The result is ignored: this value owns the sender, so the channel cannot be closed.
        let _ = self.0.subscribe().wait_for(ServerCounts::must_scan).await;
    }
}

#[derive(Debug)]
pub(crate) struct ScanPauseGuard(ScanPause);

impl Drop for ScanPauseGuard {
    fn drop(&mut self) {
        self.0
            .0
            .send_modify(|servers| servers.replaced_by_newer -= 1);
    }
}

#[derive(Debug)]
pub(crate) struct ServerGuard(ScanPause);

impl Drop for ServerGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|servers| servers.all -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_pause_only_if_each_server_has_a_pause() {
        let pause = ScanPause::default();
        let must_scan = || pause.0.borrow().must_scan();
        assert!(must_scan(), "the first scan is before the first server");
        let (_one, other) = (pause.add_server(), pause.add_server());
        let first = pause.start();
        assert!(must_scan());
        let second = pause.start();
        assert!(!must_scan());
        drop(second);
        assert!(must_scan());
        drop(other);
        assert!(!must_scan(), "only the server with a pause is left");
        drop(first);
        assert!(must_scan());
    }
}
