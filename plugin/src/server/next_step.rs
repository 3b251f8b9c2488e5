//! The next step of a resource's registration, as a function of the present state.

use std::time::Duration;

use super::Timing;
use super::socket::{Presence, SocketId};
use crate::service::RegistrationStreams;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Bind,
    /// Register with the kubelet at this socket.
    Register(SocketId),
    /// Let the kubelet forget the earlier instance.
    Detach(SocketId),
    /// Wait for a change, for at most this time.
    Wait(Duration),
}

/// The state that determines the next step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation {
    /// The state of the plugin's socket, if it has one.
    pub(super) socket: Option<Presence>,
    /// The time for which no kubelet has had a stream, if its plugin watcher finds the plugin by
    /// the socket.
    pub(super) idle: Option<Duration>,
    /// The kubelet's socket, if the resource is registered by a call at that socket.
    pub(super) kubelet: Option<SocketId>,
    /// The kubelet's socket at which the resource is registered, and for how long.
    pub(super) registered: Option<(SocketId, Duration)>,
    /// The ListAndWatch streams since the registration.
    pub(super) streams: RegistrationStreams,
    pub(super) predecessor: PredecessorState,
}

/// The state of the instance that served the resource before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PredecessorState {
    /// There is none, or its end changes nothing for the kubelet.
    Harmless,
    /// Its end would make the kubelet disconnect this instance.
    Attached,
    /// It was detached, and has ended so long ago.
    Ended(Duration),
}

pub(super) fn next_step(now: Situation, timing: &Timing) -> Step {
    match (now.socket, now.kubelet, now.registered) {
        (None | Some(Presence::Free), ..) => Step::Bind,
        // A newer boathook-plugin serves the resource.
        (Some(Presence::Taken), ..) => Step::Wait(timing.poll),
        // The plugin watcher registers a plugin again only if its socket is another.
        (_, None, _) if now.idle.is_some_and(|idle| idle >= timing.poll) => Step::Bind,
        (_, None, _) => Step::Wait(timing.poll),
        (_, Some(kubelet), None) => Step::Register(kubelet),
        (_, Some(kubelet), Some((known, _))) if kubelet != known => Step::Register(kubelet),
        (_, Some(kubelet), Some((_, ago))) => match (now.streams, now.predecessor) {
            (streams, _) if streams.open == 0 => {
                // The kubelet has closed the stream, or does not open any.
                let left = timing.listen.saturating_sub(ago);
                if streams.has_begun || left.is_zero() {
                    Step::Register(kubelet)
                } else {
                    Step::Wait(left)
                }
            }
            (_, PredecessorState::Attached) => Step::Detach(kubelet),
            (_, PredecessorState::Ended(ago)) => match timing.settle.saturating_sub(ago) {
                Duration::ZERO => Step::Register(kubelet),
                left => Step::Wait(left),
            },
            (_, PredecessorState::Harmless) => Step::Wait(timing.poll),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::*;
    use crate::service::Streams;

    #[tokio::test]
    async fn each_situation_has_its_step() {
        let directory = tempfile::tempdir().unwrap();
        let socket = |name: &str| Socket::bind(directory.path().join(name), None).unwrap();
        let (_old, _new) = (socket("old"), socket("new"));
        let id = |name: &str| SocketId::read(&directory.path().join(name));
        let (old, new) = (id("old").unwrap(), id("new").unwrap());
        let timing = Timing::default();
        let (poll, moment) = (timing.poll, Duration::from_secs(1));
        let [ours, taken, free] = [Presence::Ours, Presence::Taken, Presence::Free].map(Some);
        let listen_on = Step::Wait(timing.listen - moment);
        let too_late = Some((new, timing.listen));
        let known = Some((new, moment));
        let name = "a.b/c".to_owned().try_into().unwrap();
        let streams = Streams::default().start_count(name);
        let never = *streams.subscribe().borrow();
        let guard = streams.enter();
        let open = *streams.subscribe().borrow();
        drop(guard);
        let closed = *streams.subscribe().borrow();
        let [harmless, attached] = [PredecessorState::Harmless, PredecessorState::Attached];
        let ended = PredecessorState::Ended;
        let settled = Step::Wait(timing.settle - moment);
        for (socket, kubelet, registered, streams, predecessor, wanted) in [
            (None, None, None, never, harmless, Step::Bind),
            (None, Some(new), None, never, attached, Step::Bind),
            (ours, None, None, never, harmless, Step::Wait(poll)),
            (ours, Some(new), None, never, attached, Step::Register(new)),
            (ours, Some(new), known, open, harmless, Step::Wait(poll)),
            (ours, Some(new), known, never, attached, listen_on),
            (
                ours,
                Some(new),
                too_late,
                never,
                harmless,
                Step::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                closed,
                harmless,
                Step::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                closed,
                attached,
                Step::Register(new),
            ),
            (ours, Some(new), known, open, attached, Step::Detach(new)),
            (ours, Some(new), known, open, ended(moment), settled),
            (
                ours,
                Some(new),
                known,
                open,
                ended(timing.settle),
                Step::Register(new),
            ),
            (
                ours,
                Some(new),
                Some((old, moment)),
                open,
                attached,
                Step::Register(new),
            ),
            (
                ours,
                None,
                Some((old, moment)),
                open,
                harmless,
                Step::Wait(poll),
            ),
            (free, Some(new), known, open, harmless, Step::Bind),
            (taken, Some(new), known, open, harmless, Step::Wait(poll)),
        ] {
            let now = Situation {
                socket,
                idle: None,
                kubelet,
                registered,
                streams,
                predecessor,
            };
            assert_eq!(next_step(now, &timing), wanted, "{now:?}");
        }
        for (idle, wanted) in [
            (None, Step::Wait(poll)),
            (Some(moment), Step::Wait(poll)),
            (Some(poll), Step::Bind),
        ] {
            let now = Situation {
                socket: ours,
                idle,
                kubelet: None,
                registered: None,
                streams: never,
                predecessor: harmless,
            };
            assert_eq!(next_step(now, &timing), wanted, "{now:?}");
        }
    }
}
