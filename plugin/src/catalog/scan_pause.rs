//! Pauses of the device scans.

use tokio::sync::watch;

/// The number of reasons for not scanning the host now. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanPause(watch::Sender<usize>);

impl ScanPause {
    /// Starts a pause, which lasts until the guard is dropped.
    pub(crate) fn start(&self) -> ScanPauseGuard {
        self.0.send_modify(|pauses| *pauses += 1);
        ScanPauseGuard(self.clone())
    }

    /// Waits until there is no pause.
    pub(super) async fn wait_for_end(&self) {
        // The sender is part of this value, so that the channel is not closed.
        let _ = self.0.subscribe().wait_for(|pauses| *pauses == 0).await;
    }
}

#[derive(Debug)]
pub(crate) struct ScanPauseGuard(ScanPause);

impl Drop for ScanPauseGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|pauses| *pauses -= 1);
    }
}
