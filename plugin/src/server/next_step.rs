//! Decides the next step of a resource's registration, as a function of the current state alone.

use std::time::Duration;

use super::Timing;
use super::socket::{PathState, SocketId};
use crate::service::RegistrationStreams;

/// A step of a resource's registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationStep {
    Bind,
    /// Register with the kubelet at this socket.
    Register(SocketId),
    /// Make the kubelet ignore the end of the predecessor.
    ReleasePredecessor(SocketId),
    /// Wait for a change, for at most this time.
    Wait(Duration),
}

/// The state that determines the next step.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegistrationState {
    /// The state of the plugin's socket, if it has created one.
    pub(super) socket: Option<PathState>,
    /// How long no stream has been open. It is set only if the kubelet's plugin watcher finds the
    /// socket.
    pub(super) idle: Option<Duration>,
    /// The kubelet's socket, if the resource is registered by a call at that socket.
    pub(super) kubelet: Option<SocketId>,
    /// The kubelet's socket at which the resource is registered, and the age of the registration.
    pub(super) registered: Option<(SocketId, Duration)>,
    /// The ListAndWatch streams since the registration.
    pub(super) streams: RegistrationStreams,
    pub(super) predecessor: PredecessorState,
}

/// The state of the instance that served the resource before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PredecessorState {
    /// There is no predecessor, or the kubelet ignores its end.
    AbsentOrReleased,
    /// The end of the predecessor would make the kubelet disconnect this instance.
    StillKnown,
    /// The predecessor was released, and ended this long ago.
    Ended(Duration),
}

pub(super) fn next_step(state: RegistrationState, timing: &Timing) -> RegistrationStep {
    match (state.socket, state.kubelet, state.registered) {
        (None | Some(PathState::Free), ..) => RegistrationStep::Bind,
        // A newer instance serves the resource.
        (Some(PathState::OtherSocket), ..) => RegistrationStep::Wait(timing.poll_interval),
        // The plugin watcher registers a plugin again only if it finds a new socket.
        (_, None, _) if state.idle.is_some_and(|idle| idle >= timing.poll_interval) => {
            RegistrationStep::Bind
        }
        (_, None, _) => RegistrationStep::Wait(timing.poll_interval),
        (_, Some(kubelet), None) => RegistrationStep::Register(kubelet),
        (_, Some(kubelet), Some((known, _))) if kubelet != known => {
            RegistrationStep::Register(kubelet)
        }
        (_, Some(kubelet), Some((_, ago))) => match (state.streams, state.predecessor) {
            (streams, _) if streams.open == 0 => {
                // The kubelet has closed the stream, or has not opened one.
                let left = timing.stream_timeout.saturating_sub(ago);
                if streams.has_begun || left.is_zero() {
                    RegistrationStep::Register(kubelet)
                } else {
                    RegistrationStep::Wait(left)
                }
            }
            (_, PredecessorState::StillKnown) => RegistrationStep::ReleasePredecessor(kubelet),
            (_, PredecessorState::Ended(ago)) => {
                match timing.end_notice_delay.saturating_sub(ago) {
                    Duration::ZERO => RegistrationStep::Register(kubelet),
                    left => RegistrationStep::Wait(left),
                }
            }
            (_, PredecessorState::AbsentOrReleased) => RegistrationStep::Wait(timing.poll_interval),
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
        let (poll, moment) = (timing.poll_interval, Duration::from_secs(1));
        let [ours, taken, free] = [
            PathState::OwnSocket,
            PathState::OtherSocket,
            PathState::Free,
        ]
        .map(Some);
        let listen_on = RegistrationStep::Wait(timing.stream_timeout - moment);
        let too_late = Some((new, timing.stream_timeout));
        let known = Some((new, moment));
        let name = "a.b/c".to_owned().try_into().unwrap();
        let streams = Streams::default().start_count(name);
        let never = *streams.subscribe().borrow();
        let guard = streams.count_stream();
        let open = *streams.subscribe().borrow();
        drop(guard);
        let closed = *streams.subscribe().borrow();
        let [absent, still_known] = [
            PredecessorState::AbsentOrReleased,
            PredecessorState::StillKnown,
        ];
        let ended = PredecessorState::Ended;
        let settled = RegistrationStep::Wait(timing.end_notice_delay - moment);
        for (socket, kubelet, registered, streams, predecessor, wanted) in [
            (None, None, None, never, absent, RegistrationStep::Bind),
            (
                None,
                Some(new),
                None,
                never,
                still_known,
                RegistrationStep::Bind,
            ),
            (
                ours,
                None,
                None,
                never,
                absent,
                RegistrationStep::Wait(poll),
            ),
            (
                ours,
                Some(new),
                None,
                never,
                still_known,
                RegistrationStep::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                open,
                absent,
                RegistrationStep::Wait(poll),
            ),
            (ours, Some(new), known, never, still_known, listen_on),
            (
                ours,
                Some(new),
                too_late,
                never,
                absent,
                RegistrationStep::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                closed,
                absent,
                RegistrationStep::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                closed,
                still_known,
                RegistrationStep::Register(new),
            ),
            (
                ours,
                Some(new),
                known,
                open,
                still_known,
                RegistrationStep::ReleasePredecessor(new),
            ),
            (ours, Some(new), known, open, ended(moment), settled),
            (
                ours,
                Some(new),
                known,
                open,
                ended(timing.end_notice_delay),
                RegistrationStep::Register(new),
            ),
            (
                ours,
                Some(new),
                Some((old, moment)),
                open,
                still_known,
                RegistrationStep::Register(new),
            ),
            (
                ours,
                None,
                Some((old, moment)),
                open,
                absent,
                RegistrationStep::Wait(poll),
            ),
            (free, Some(new), known, open, absent, RegistrationStep::Bind),
            (
                taken,
                Some(new),
                known,
                open,
                absent,
                RegistrationStep::Wait(poll),
            ),
        ] {
            let state = RegistrationState {
                socket,
                idle: None,
                kubelet,
                registered,
                streams,
                predecessor,
            };
            assert_eq!(next_step(state, &timing), wanted, "{state:?}");
        }
        for (idle, wanted) in [
            (None, RegistrationStep::Wait(poll)),
            (Some(moment), RegistrationStep::Wait(poll)),
            (Some(poll), RegistrationStep::Bind),
        ] {
            let state = RegistrationState {
                socket: ours,
                idle,
                kubelet: None,
                registered: None,
                streams: never,
                predecessor: absent,
            };
            assert_eq!(next_step(state, &timing), wanted, "{state:?}");
        }
    }
}
