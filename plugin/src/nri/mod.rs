//! The plugin as a plugin of the container engine, by the Node Resource Interface
//! of containerd and CRI-O: it adds the hook to containers that request devices.
//!
//! ```text
//! connect ─▶ register ─▶ Configure ─▶ Synchronize ─▶ connected: CreateContainer, …
//!    ▲                                                  │
//!    └───────── wait, longer each time ◀── any failure ─┘
//! ```
//!
//! An engine starts containers without a plugin that is not connected or too slow.
//! Therefore PreStartContainer fails while there is no connection, an answer is sent
//! before the engine's timeout, and if the engine supports it
//! ValidateContainerAdjustment is answered too.

mod adjuster;
mod engine;
mod session;
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device_class::config::Config;
use tokio::sync::watch;

use crate::catalog::Inventory;
use crate::metrics::Metrics;
use crate::server::Backoff;
use adjuster::Adjuster;
pub(crate) use state::Link;
use state::State;

/// The waits between two connections, the first and the longest.
const WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The parameters of the connection.
#[derive(Debug, Clone)]
pub struct NriOptions {
    /// The engine's socket.
    pub socket: PathBuf,
    /// The hook, as a path on the host.
    pub hook: PathBuf,
}

/// The connection to the engine, and the answers to its requests.
#[derive(Debug)]
pub(crate) struct Nri {
    socket: PathBuf,
    adjuster: Arc<Adjuster>,
    state: watch::Sender<State>,
    metrics: Metrics,
}

impl Nri {
    /// A client that is not connected yet, and its state.
    pub(crate) fn new(
        options: NriOptions,
        config: Config,
        metrics: Metrics,
        devices: watch::Receiver<Inventory>,
    ) -> (Self, Link) {
        let reason = "not connected to the engine yet".to_owned();
        let (state, receiver) = watch::channel(State::Disconnected { reason });
        metrics.serving_engine();
        let nri = Nri {
            socket: options.socket,
            adjuster: Arc::new(Adjuster::new(config, options.hook, devices)),
            state,
            metrics,
        };
        (nri, Link::to(receiver))
    }

    /// Connects, and answers the engine's requests; connects again when the connection
    /// ends.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(WAITS[0], WAITS[1]);
        loop {
            let Err(error) = session::run(&self).await;
            let reason = error.to_string();
            let before = self.state.send_replace(State::Disconnected {
                reason: reason.clone(),
            });
            if matches!(before, State::Connected) {
                backoff.reset();
            }
            if before != (State::Disconnected { reason }) {
                tracing::warn!("NRI: {error}; trying again");
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
}
