//! Pauses of the device scans.

use tokio::sync::watch;

/// Whether the host is not scanned now, because a newer instance serves all resources. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanPause(watch::Sender<Servers>);

#[derive(Debug, Default)]
struct Servers {
    all: usize,
    /// The servers whose resources a newer instance serves.
    replaced: usize,
}

impl Servers {
    fn must_scan(&self) -> bool {
        self.replaced == 0 || self.replaced < self.all
    }
}

impl ScanPause {
    /// Counts a server, which needs scans, until the guard is dropped.
    pub(crate) fn add_server(&self) -> ServerGuard {
        self.0.send_modify(|servers| servers.all += 1);
        ServerGuard(self.clone())
    }

    /// Starts a pause of one server, which lasts until the guard is dropped.
    pub(crate) fn start(&self) -> ScanPauseGuard {
        self.0.send_modify(|servers| servers.replaced += 1);
        ScanPauseGuard(self.clone())
    }

    /// Waits until at least one server needs scans, or none has a pause.
    pub(super) async fn wait_for_end(&self) {
        // The sender is part of this value, so that the channel is not closed.
        let _ = self.0.subscribe().wait_for(Servers::must_scan).await;
    }
}

#[derive(Debug)]
pub(crate) struct ScanPauseGuard(ScanPause);

impl Drop for ScanPauseGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|servers| servers.replaced -= 1);
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
