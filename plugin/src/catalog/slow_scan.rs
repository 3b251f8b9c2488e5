//! Looks at the host that do not end.

use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

/// A look that takes so long hangs in a driver, most likely.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a look however long it takes, and says so once when it is long.
pub(super) async fn wait_for_scan<T>(mut looking: JoinHandle<T>) -> Result<T, JoinError> {
    if let Ok(looked) = tokio::time::timeout(PATIENCE, &mut looking).await {
        return looked;
    }
    tracing::warn!(
        "the look at the host has not ended in {} s: a driver may hang; the last one stays",
        PATIENCE.as_secs()
    );
    let looked = looking.await;
    tracing::info!("the look at the host has ended");
    looked
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_said_once_and_waited_for() {
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
