//! Notifications without content. They only say that something has changed. If several
//! notifications arrive before a wait, they have the effect of one.

use tokio::sync::watch;

/// Sends notifications to all clones of its [`Notifications`].
#[derive(Debug, Clone)]
pub struct Notifier(watch::Sender<()>);

/// Receives the notifications of one [`Notifier`]. Each clone receives all of them.
#[derive(Debug, Clone)]
pub struct Notifications(watch::Receiver<()>);

impl Notifier {
    pub fn new() -> (Notifier, Notifications) {
        let (sender, receiver) = watch::channel(());
        (Notifier(sender), Notifications(receiver))
    }

    pub fn notify(&self) {
        self.0.send_replace(());
    }
}

impl Notifications {
    /// Waits for a notification. Returns at once if a notification was sent since the last wait.
    /// Never returns if the notifier was dropped.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Discards pending notifications, so that they do not end the next wait.
    pub fn clear(&mut self) {
        self.0.mark_unchanged();
    }
}
