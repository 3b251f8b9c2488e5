//! Refuses the call GetDevicePluginOptions, which is the kubelet's first call after Register, so
//! that the registration fails on purpose (see `server::instance`).

use tokio::sync::watch;
use tonic::Status;

/// A switch that makes the plugin refuse GetDevicePluginOptions. All clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct OptionsRefusal(watch::Sender<RefusalState>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalState {
    Inactive,
    Active,
    /// The kubelet has made the call, which was refused.
    CallRefused,
}

impl Default for OptionsRefusal {
    fn default() -> Self {
        OptionsRefusal(watch::Sender::new(RefusalState::Inactive))
    }
}

impl OptionsRefusal {
    pub(crate) fn start(&self) {
        self.0.send_replace(RefusalState::Active);
    }

    /// Ends the refusal. Returns whether the kubelet has made the call while the refusal was
    /// active.
    pub(crate) fn end(&self) -> bool {
        self.0.send_replace(RefusalState::Inactive) == RefusalState::CallRefused
    }

    /// Returns an error while the refusal is active, and records for [`Self::end`] that the kubelet
    /// has made the call.
    pub(crate) fn refuse_if_active(&self) -> Result<(), Status> {
        let is_refused = self.0.send_if_modified(|state| {
            let is_active = *state != RefusalState::Inactive;
            if is_active {
                *state = RefusalState::CallRefused;
            }
            is_active
        });
        if is_refused {
            let reason = "another instance of this plugin is about to end; this one stays \
                          registered, and no action is needed";
            return Err(Status::unavailable(reason));
        }
        Ok(())
    }
}
