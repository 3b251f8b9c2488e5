//! Whether the engine sends this plugin requests for new containers.

use tokio::sync::watch;

/// The state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The engine sends a request for each new container.
    Connected,
    /// The engine does not send requests.
    Disconnected { reason: String },
}

/// The state of the connection to the engine. By default no connection is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link(Option<watch::Receiver<State>>);

impl Link {
    pub(super) fn to(state: watch::Receiver<State>) -> Self {
        Link(Some(state))
    }

    /// Whether a connection is configured.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Why the engine would start containers without their devices, if it would.
    pub(crate) fn problem(&self) -> Option<String> {
        match &*self.0.as_ref()?.borrow() {
            State::Connected => None,
            State::Disconnected { reason } => Some(format!("NRI: {reason}")),
        }
    }
}
