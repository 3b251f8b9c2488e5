//! Receives the signals that end the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The receivers of SIGTERM, SIGINT and SIGQUIT, with the signals' names. If this process is the
/// first process of a container, the kernel discards these signals unless the process handles them.
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
    pub(crate) async fn next_signal(&mut self) -> &'static str {
        let [
            (first_name, first_signal),
            (second_name, second_signal),
            (third_name, third_signal),
        ] = &mut self.0;
        tokio::select! {
            _ = first_signal.recv() => first_name,
            _ = second_signal.recv() => second_name,
            _ = third_signal.recv() => third_name,
        }
    }
}
