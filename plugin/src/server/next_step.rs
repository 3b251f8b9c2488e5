//! Determines the next step of a resource's registration from the current state alone.

use std::time::Duration;

use super::Timing;
use super::socket::{PathState, SocketId};
use crate::service::RegistrationStreams;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationStep {
    Bind,
    /// Register the resource with the kubelet that listens at this socket.
    Register(SocketId),
    /// Make the kubelet ignore the end of the earlier instance of the plugin.
    ReleasePredecessor(SocketId),
    /// Wait until the state changes, but no longer than this time.
    Wait(Duration),
}

/// The state of a resource's registration, which determines the next step.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegistrationState {
    /// The state of the plugin's socket path. `None` means that the plugin has not created a
    /// socket.
    pub(super) path_state: Option<PathState>,
    /// The time that has passed without an open ListAndWatch stream. It is set only if the plugin
    /// registers through the kubelet's plugin watcher.
    pub(super) idle_duration: Option<Duration>,
    /// The kubelet's socket, if the plugin registers by a call at that socket.
    pub(super) kubelet_socket: Option<SocketId>,
    /// The kubelet's socket at which the resource was registered, and the time since that
    /// registration.
    pub(super) registration: Option<(SocketId, Duration)>,
    /// The ListAndWatch streams that were opened since the registration.
    pub(super) streams: RegistrationStreams,
    pub(super) predecessor: PredecessorState,
}

/// The state of the instance that served the resource before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PredecessorState {
    /// There is no earlier instance, or it runs and the kubelet ignores its end.
    NoReleaseNeeded,
    /// The earlier instance runs, and the kubelet would disconnect this instance when it ends.
    ReleaseNeeded,
    /// The earlier instance has ended, and the kubelet ignored its end. The value is the time since
    /// its end.
    EndedAfterRelease(Duration),
}

pub(super) fn determine_next_step(state: RegistrationState, timing: &Timing) -> RegistrationStep {
    match (state.path_state, state.kubelet_socket, state.registration) {
        (None | Some(PathState::Unserved), ..) => RegistrationStep::Bind,
        // The other process is a newer instance of the plugin, which serves the resource.
        (Some(PathState::ServedByOtherProcess), ..) => RegistrationStep::Wait(timing.poll_interval),
        // A new socket is created, because the plugin watcher registers a plugin again only if it
        // finds a new socket.
        (_, None, _)
            if state
                .idle_duration
                .is_some_and(|duration| duration >= timing.poll_interval) =>
        {
            RegistrationStep::Bind
        }
        (_, None, _) => RegistrationStep::Wait(timing.poll_interval),
        (_, Some(kubelet), None) => RegistrationStep::Register(kubelet),
        (_, Some(kubelet), Some((registered_at, _))) if kubelet != registered_at => {
            RegistrationStep::Register(kubelet)
        }
        (_, Some(kubelet), Some((_, age))) => match (state.streams, state.predecessor) {
            (streams, _) if streams.open_count == 0 => {
                // The kubelet has closed the stream, or has not opened a stream since the
                // registration.
                let remaining_time = timing.stream_timeout.saturating_sub(age);
                if streams.has_opened || remaining_time.is_zero() {
                    RegistrationStep::Register(kubelet)
                } else {
                    RegistrationStep::Wait(remaining_time)
                }
            }
            (_, PredecessorState::ReleaseNeeded) => RegistrationStep::ReleasePredecessor(kubelet),
            (_, PredecessorState::EndedAfterRelease(elapsed)) => {
                match timing.predecessor_end_delay.saturating_sub(elapsed) {
                    Duration::ZERO => RegistrationStep::Register(kubelet),
                    remaining_time => RegistrationStep::Wait(remaining_time),
                }
            }
            (_, PredecessorState::NoReleaseNeeded) => RegistrationStep::Wait(timing.poll_interval),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::*;
    use crate::service::OpenStreamCounts;

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
            PathState::ServedByThisProcess,
            PathState::ServedByOtherProcess,
            PathState::Unserved,
        ]
        .map(Some);
        let listen_on = RegistrationStep::Wait(timing.stream_timeout - moment);
        let too_late = Some((new, timing.stream_timeout));
        let known = Some((new, moment));
        let name = "a.b/c".to_owned().try_into().unwrap();
        let streams = OpenStreamCounts::default().create_stream_count(name);
        let never = *streams.subscribe().borrow();
        let guard = streams.count_stream();
        let open = *streams.subscribe().borrow();
        drop(guard);
        let closed = *streams.subscribe().borrow();
        let [absent, still_known] = [
            PredecessorState::NoReleaseNeeded,
            PredecessorState::ReleaseNeeded,
        ];
        let ended = PredecessorState::EndedAfterRelease;
        let settled = RegistrationStep::Wait(timing.predecessor_end_delay - moment);
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
                ended(timing.predecessor_end_delay),
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
                path_state: socket,
                idle_duration: None,
                kubelet_socket: kubelet,
                registration: registered,
                streams,
                predecessor,
            };
            assert_eq!(determine_next_step(state, &timing), wanted, "{state:?}");
        }
        for (idle, wanted) in [
            (None, RegistrationStep::Wait(poll)),
            (Some(moment), RegistrationStep::Wait(poll)),
            (Some(poll), RegistrationStep::Bind),
        ] {
            let state = RegistrationState {
                path_state: ours,
                idle_duration: idle,
                kubelet_socket: None,
                registration: None,
                streams: never,
                predecessor: absent,
            };
            assert_eq!(determine_next_step(state, &timing), wanted, "{state:?}");
        }
    }
}
