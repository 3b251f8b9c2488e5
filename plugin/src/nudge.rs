//! Word that something is different, without saying what: many nudges before
//! the next look count as one.

use tokio::sync::watch;

/// Gives the word.
#[derive(Debug, Clone)]
pub struct Nudge(watch::Sender<()>);

/// Takes the word.
#[derive(Debug, Clone)]
pub struct Nudged(watch::Receiver<()>);

impl Nudge {
    /// A pair of the two.
    pub fn new() -> (Nudge, Nudged) {
        let (sender, receiver) = watch::channel(());
        (Nudge(sender), Nudged(receiver))
    }

    /// Gives the word.
    pub fn give(&self) {
        self.0.send_replace(());
    }
}

impl Nudged {
    /// Waits for word since the last wait. Without anybody who could give it,
    /// for ever.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What was said until now need not end the next wait.
    pub fn forget(&mut self) {
        self.0.mark_unchanged();
    }
}
