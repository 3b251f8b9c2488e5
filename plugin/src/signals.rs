//! Receives the signals that end the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives SIGTERM, SIGINT and SIGQUIT. The kernel ignores them for the first process of a
/// container unless it handles them.
#[derive(Debug)]
pub(crate) struct EndSignals([(&'static str, Signal); 3]);

impl EndSignals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(EndSignals([
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
            ("SIGQUIT", signal(SignalKind::quit())?),
        ]))
    }

    /// Waits for the next signal and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        let [(first, a), (second, b), (third, c)] = &mut self.0;
        tokio::select! {
            _ = a.recv() => first,
            _ = b.recv() => second,
            _ = c.recv() => third,
        }
    }
}
