//! The refusal to tell the kubelet the options of the plugin, with which a registration fails on
//! purpose (see `server::instance`).

use tokio::sync::watch;
use tonic::Status;

/// Whether the kubelet's question for the options of the plugin is refused. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct OptionsRefusal(watch::Sender<Refusal>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Off,
    On,
    /// The kubelet has asked and was refused.
    Done,
}

impl Default for OptionsRefusal {
    fn default() -> Self {
        OptionsRefusal(watch::Sender::new(Refusal::Off))
    }
}

impl OptionsRefusal {
    pub(crate) fn start(&self) {
        self.0.send_replace(Refusal::On);
    }

    /// Ends the refusal. Returns whether the kubelet was refused.
    pub(crate) fn end(&self) -> bool {
        self.0.send_replace(Refusal::Off) == Refusal::Done
    }

    /// Returns the refusal while there is one.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let refused = self.0.send_if_modified(|refusal| {
            let refused = *refusal != Refusal::Off;
            if refused {
                *refusal = Refusal::Done;
            }
            refused
        });
        if refused {
            let reason = "an earlier instance of this plugin is about to end; this one stays \
                          registered, and no action is needed";
            return Err(Status::unavailable(reason));
        }
        Ok(())
    }
}
