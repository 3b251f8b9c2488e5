//! Notification that something changed, without details: several notifications
//! before the next wait count as one.

use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct Notifier(watch::Sender<()>);

#[derive(Debug, Clone)]
pub(crate) struct Notified(watch::Receiver<()>);

impl Notifier {
    pub(crate) fn new() -> (Notifier, Notified) {
        let (sender, receiver) = watch::channel(());
        (Notifier(sender), Notified(receiver))
    }

    pub(crate) fn notify(&self) {
        self.0.send_replace(());
    }
}

impl Notified {
    /// Waits for a notification since the last wait; forever if the notifier
    /// was dropped.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Discards pending notifications, so that they do not end the next wait.
    pub(crate) fn clear(&mut self) {
        self.0.mark_unchanged();
    }
}
