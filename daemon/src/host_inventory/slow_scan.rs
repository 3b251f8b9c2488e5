//! Detects slow scans. A driver can block the read of its file forever, and a thread that is
//! blocked in the kernel cannot be ended. No other scan starts until the read returns, so at most
//! one thread is blocked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle};

/// The duration after which a scan is reported as slow. Such a scan is probably blocked in a
/// driver.
const SLOW_SCAN_THRESHOLD: Duration = Duration::from_secs(30);

/// Shows since when a scan is running, and whether any scan has ended. All clones share one state.
#[derive(Debug, Clone, Default)]
pub struct ScanProgress(Arc<Mutex<ProgressState>>);

#[derive(Debug, Default)]
struct ProgressState {
    start_time: Option<Instant>,
    has_ended: bool,
}

impl ScanProgress {
    fn update<T>(&self, change: impl FnOnce(&mut ProgressState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn begin(&self) {
        self.update(|progress| progress.start_time = Some(Instant::now()));
    }

    pub(crate) fn end(&self) -> Duration {
        let duration = self.running_time();
        self.update(|progress| {
            *progress = ProgressState {
                start_time: None,
                has_ended: true,
            };
        });
        duration
    }

    /// Returns the time since the start of the current scan, or 0 if no scan is running.
    pub fn running_time(&self) -> Duration {
        self.update(|progress| {
            progress
                .start_time
                .map_or(Duration::ZERO, |start_time| start_time.elapsed())
        })
    }

    pub fn has_ended(&self) -> bool {
        self.update(|progress| progress.has_ended)
    }
}

/// Waits without a time limit until a scan ends. Logs a warning when the scan becomes slow, and a
/// message when a slow scan has ended.
pub(crate) async fn wait_for_scan<T>(mut scan_thread: JoinHandle<T>) -> Result<T, JoinError> {
    if let Ok(result) = tokio::time::timeout(SLOW_SCAN_THRESHOLD, &mut scan_thread).await {
        return result;
    }
    tracing::warn!(
        "device scan still running after {} s, keeping previous results: a driver may hang",
        SLOW_SCAN_THRESHOLD.as_secs()
    );
    let result = scan_thread.await;
    tracing::info!("device scan has ended");
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_scan_is_logged_once_and_waited_for() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = File::options().append(true).open(log.path()).unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let _said = tracing::subscriber::set_default(subscriber);
        for (seconds, lines) in [(29, 0), (1000, 2)] {
            let look = tokio::spawn(tokio::time::sleep(Duration::from_secs(seconds)));
            wait_for_scan(look).await.unwrap();
            let said = std::fs::read_to_string(log.path()).unwrap();
            assert_eq!(said.lines().count(), lines, "{said}");
        }
    }
}
