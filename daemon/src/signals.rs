//! Receives the signals that end a program, or that reload its classes.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[cfg(feature = "inventory")]
use crate::host_inventory::Notifier;

/// The receivers of SIGTERM, SIGINT and SIGQUIT, with the signals' names. If this process is the
/// first process of a container, the kernel discards these signals unless the process handles them.
#[derive(Debug)]
pub struct EndSignals([(&'static str, Signal); 3]);

impl EndSignals {
    /// Installs the handlers. From then on the signals do not end this process by themselves.
    pub fn new() -> anyhow::Result<Self> {
        Ok(EndSignals([
            ("SIGTERM", install_handler(SignalKind::terminate())?),
            ("SIGINT", install_handler(SignalKind::interrupt())?),
            ("SIGQUIT", install_handler(SignalKind::quit())?),
        ]))
    }

    /// Waits for the next of these signals, and logs its name. The caller then ends the program.
    pub async fn wait(&mut self) {
        let [
            (first_name, first_signal),
            (second_name, second_signal),
            (third_name, third_signal),
        ] = &mut self.0;
        let name = tokio::select! {
            _ = first_signal.recv() => first_name,
            _ = second_signal.recv() => second_name,
            _ = third_signal.recv() => third_name,
        };
        tracing::info!("received {name}, exiting");
    }
}

/// The receiver of SIGHUP, which asks a program to read its class files again.
#[cfg(feature = "inventory")]
#[derive(Debug)]
pub struct HangupSignals(Signal);

#[cfg(feature = "inventory")]
impl HangupSignals {
    /// Installs the handler. From then on the signal does not end this process.
    pub fn new() -> anyhow::Result<Self> {
        install_handler(SignalKind::hangup()).map(HangupSignals)
    }

    /// Notifies `reload` of each SIGHUP, so that the class files are read again.
    pub async fn forward(mut self, reload: Notifier) {
        while self.0.recv().await.is_some() {
            tracing::info!("received SIGHUP, reloading the classes");
            reload.notify();
        }
    }
}

fn install_handler(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot install a signal handler")
}
