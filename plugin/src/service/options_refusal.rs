//! Refuses the call GetDevicePluginOptions, with which the kubelet begins, so that a registration
//! fails on purpose (see `server::instance`).

use tokio::sync::watch;
use tonic::Status;

/// Whether GetDevicePluginOptions is refused. All clones share this state.
#[derive(Debug, Clone)]
pub(crate) struct OptionsRefusal(watch::Sender<Refusal>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Off,
    On,
    /// The kubelet made the call and was refused.
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

    /// Ends the refusal. Returns whether a call was refused.
    pub(crate) fn end(&self) -> bool {
        self.0.send_replace(Refusal::Off) == Refusal::Done
    }

    /// Returns an error while the refusal is active.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let refused = self.0.send_if_modified(|refusal| {
            let refused = *refusal != Refusal::Off;
            if refused {
                *refusal = Refusal::Done;
            }
            refused
        });
        if refused {
            let reason = "another instance of this plugin is about to end; this one stays \
                          registered, and no action is needed";
            return Err(Status::unavailable(reason));
        }
        Ok(())
    }
}
