//! Decides whether a container may get the devices that it requests, and who authorizes this: the
//! request itself, a CDI specification, or the kubelet's checkpoints. The functions of this file
//! read no files, so the decision depends only on their arguments. `ARCHITECTURE.md` ("Who
//! authorizes a request") describes the decision in two tables. The test below compares every
//! combination with these tables.

use injection_plan::plan::UnrecordedDevicesRule;

use crate::oci::CdiGrant;

/// The program or user for whom an injection plan is made. The planner considers only the requests
/// for devices that this caller may make.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A container engine. It calls the hook or `boathook-runtime` for every container. The
    /// container's environment variables and annotations are considered, except for a class of
    /// which a CDI specification grants devices.
    #[default]
    Engine,
    /// A hook from a CDI specification. Only the grants of CDI specifications are considered.
    Cdi(CdiGrant),
    /// A command that shows the whole plan, such as `boathook explain` or `boathook doctor`. All
    /// requests are considered.
    PlanInspector,
    /// A command that changes a running container. The container's variables and annotations are
    /// considered only if config.json has a hook that reads them. Otherwise the engine never handed
    /// them to Boathook, and nobody has authorized them.
    RunningContainerChange,
    /// A user who attaches devices. Only the requests of `boathook attach` are considered.
    Attach,
}

/// The place from which a request for devices comes: a part of the container's config.json, or a
/// user's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSourceKind {
    /// An environment variable of the container. Any image can set it, so it is the least trusted
    /// source.
    Variable,
    /// An annotation that the device plugin returned to the kubelet.
    Annotation,
    /// The arguments of a hook from a CDI specification. Only root can write CDI specifications.
    Cdi,
    /// A user's command `boathook attach`.
    Attach,
    /// A user's command `boathook attach --force`, for devices that the kubelet did not allocate.
    ForcedAttach,
}

/// The kind of a container's origin, which is a pod or a user of the host. The variants are those
/// of [`crate::trust::ContainerOrigin`] without data, and `Uncertain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginKind {
    NoPod,
    Sandbox,
    Pod,
    /// It is not certain whether the container belongs to a pod. The path of its cgroup and the
    /// engine's annotations contradict each other, or a necessary annotation is missing.
    Uncertain,
}

/// The properties of a container that affect the decision about a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerProperties {
    pub(crate) origin: OriginKind,
    /// True if config.json has a Boathook hook that reads the container's variables and
    /// annotations.
    pub(crate) has_request_hook: bool,
    /// True if config.toml sets `allow_env_outside_kubernetes`. Then a container that belongs to no
    /// pod gets devices because its environment variables request them.
    pub(crate) allows_variable_requests: bool,
    /// True if `trusted_pods` in config.toml or in the class file names the container's pod.
    pub(crate) is_trusted: bool,
    /// True if config.json has an annotation with CDI device names. Such an annotation is not
    /// trusted, because a user may have written it.
    pub(crate) has_cdi_annotation: bool,
    /// True if the bounding set in config.json contains CAP_SYS_ADMIN, so that a process of the
    /// container may have this capability.
    pub(crate) has_sys_admin: bool,
}

/// The result of [`authorize`] for one request of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request is ignored, because of the caller or of the container's origin.
    Ignored,
    /// The request is granted without any further proof. The kubelet's checkpoints are not read.
    Request {
        reason: DecisionReason,
        /// True if the request may also name capabilities that the class lists as
        /// `trusted_capabilities`.
        allows_trusted_capabilities: bool,
    },
    /// The kubelet's checkpoints decide: these are the files in which the kubelet records the
    /// devices and the resource claims of its pods.
    KubeletCheckpoints(UnrecordedDevicesRule, AcceptedClaims),
    /// The container starts, but this request gives it no device.
    NoDevice(DecisionReason),
    /// The request is an error: the container does not start, or the user's command fails.
    Refused(DecisionReason),
}

/// The Kubernetes resource claims that are accepted as claims of the container's pod. Only a CDI
/// specification names a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedClaims {
    None,
    /// Only the claims in the kubelet's checkpoint of resource claims.
    Recorded,
    /// Like `Recorded`, but all claims are accepted if the checkpoint does not exist. A kubelet
    /// with another root directory has its checkpoint elsewhere.
    AllWithoutCheckpoint,
}

/// The reason for a [`Decision`]. Messages to the user explain it in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecisionReason {
    NoPod,
    NotAllowed,
    Sandbox,
    TrustedPod,
    CdiSpecification,
    Administrator,
    Force,
    Uncertain,
}

/// Reports whether a request from `source` counts for this caller. A request that does not count is
/// ignored without a message. `has_request_hook` is true if config.json has a hook that reads
/// variables and annotations.
pub(crate) fn is_request_considered(
    caller: &Caller,
    source: RequestSourceKind,
    has_request_hook: bool,
) -> bool {
    use RequestSourceKind::{Annotation, Attach, Cdi, ForcedAttach, Variable};
    match (caller, source) {
        (Caller::Engine, Variable | Annotation) => true,
        (Caller::Cdi(_), Cdi) => true,
        (Caller::Engine | Caller::Cdi(_), _) => false,
        (Caller::PlanInspector, _) => true,
        (Caller::RunningContainerChange, Variable | Annotation) => has_request_hook,
        (Caller::RunningContainerChange, Cdi | Attach | ForcedAttach) => true,
        (Caller::Attach, Attach | ForcedAttach) => true,
        (Caller::Attach, _) => false,
    }
}

/// Decides whether a request from `source` is authorized, and by whom. The decision may also be
/// that the request is ignored or refused.
pub(crate) fn authorize(
    caller: &Caller,
    source: RequestSourceKind,
    properties: &ContainerProperties,
) -> Decision {
    use OriginKind::{NoPod, Pod, Sandbox, Uncertain};
    use RequestSourceKind::{Annotation, Attach, Cdi, ForcedAttach, Variable};
    if !is_request_considered(caller, source, properties.has_request_hook) {
        return Decision::Ignored;
    }
    let authorize_by_request = |reason| Decision::Request {
        reason,
        // Outside of pods, the author of any image can request trusted capabilities with a
        // variable. So such a container gets them only if config.json allows it CAP_SYS_ADMIN
        // anyway.
        allows_trusted_capabilities: properties.origin != NoPod || properties.has_sys_admin,
    };
    match (properties.origin, source) {
        (Uncertain, _) => Decision::Refused(DecisionReason::Uncertain),
        // Outside of pods, an annotation authorizes nothing. Its author may be the author of the
        // image, because podman copies annotations from the manifest of an image.
        (NoPod | Sandbox, Annotation) => Decision::Ignored,
        (NoPod, Attach | ForcedAttach) => authorize_by_request(DecisionReason::Administrator),
        (_, ForcedAttach) => authorize_by_request(DecisionReason::Force),
        (NoPod, Cdi) => authorize_by_request(DecisionReason::CdiSpecification),
        (NoPod, Variable) if properties.allows_variable_requests => {
            authorize_by_request(DecisionReason::NoPod)
        }
        (NoPod, Variable) => Decision::NoDevice(DecisionReason::NotAllowed),
        (Sandbox, Variable) => Decision::NoDevice(DecisionReason::Sandbox),
        // These requests are refused instead of ignored. For CDI, the engine has already added the
        // device nodes to config.json. For `attach`, a user waits for the result.
        (Sandbox, Cdi | Attach) => Decision::Refused(DecisionReason::Sandbox),
        (Pod, _) if properties.is_trusted => authorize_by_request(DecisionReason::TrustedPod),
        (Pod, Variable) => Decision::KubeletCheckpoints(
            UnrecordedDevicesRule::LimitToRecorded,
            AcceptedClaims::None,
        ),
        (Pod, Annotation) => Decision::KubeletCheckpoints(
            UnrecordedDevicesRule::RequireRecorded,
            AcceptedClaims::None,
        ),
        // Only root writes CDI specifications, but users may choose which of their devices a
        // container gets. CRI-O reads the device names from the annotations of the pod and of a
        // restored image. containerd before 2.1.9, 2.2.5 and 2.3.2 also reads them from a restored
        // image (GHSA-33vj-92qq-66hc), which config.json does not show.
        (Pod, Cdi) if properties.has_cdi_annotation => Decision::KubeletCheckpoints(
            UnrecordedDevicesRule::RefuseUnrecorded,
            AcceptedClaims::Recorded,
        ),
        (Pod, Cdi) => Decision::KubeletCheckpoints(
            UnrecordedDevicesRule::RefuseUnrecorded,
            AcceptedClaims::AllWithoutCheckpoint,
        ),
        (Pod, Attach) => Decision::KubeletCheckpoints(
            UnrecordedDevicesRule::GrantRequested,
            AcceptedClaims::Recorded,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SOURCES: [RequestSourceKind; 5] = [
        RequestSourceKind::Variable,
        RequestSourceKind::Annotation,
        RequestSourceKind::Cdi,
        RequestSourceKind::Attach,
        RequestSourceKind::ForcedAttach,
    ];

    /// Returns the rows of a table of ARCHITECTURE.md. `head` is the first word of the table's
    /// head.
    fn table(text: &str, head: &str) -> Vec<Vec<String>> {
        let cells = |line: &str| -> Vec<String> {
            let line = line.trim_matches('|').split('|');
            line.map(|cell| cell.trim().to_owned()).collect()
        };
        let begin = format!("| {head} | variable | annotation | CDI | attach | attach --force |");
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&begin));
        assert!(lines.next().is_some(), "no table of {head}");
        let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
        rows.map(cells).collect()
    }

    /// Returns each caller, and whether config.json has the hook.
    fn callers() -> [(Caller, bool); 6] {
        let grant = CdiGrant::parse("chips=0").unwrap();
        [
            (Caller::Engine, true),
            (Caller::Cdi(grant), false),
            (Caller::PlanInspector, false),
            (Caller::RunningContainerChange, true),
            (Caller::RunningContainerChange, false),
            (Caller::Attach, true),
        ]
    }

    /// Returns the containers of the table, in the order of its rows.
    fn containers() -> [ContainerProperties; 7] {
        let no_pod = ContainerProperties {
            origin: OriginKind::NoPod,
            has_request_hook: false,
            allows_variable_requests: true,
            is_trusted: false,
            has_cdi_annotation: false,
            has_sys_admin: false,
        };
        let pod = ContainerProperties {
            origin: OriginKind::Pod,
            ..no_pod
        };
        [
            no_pod,
            ContainerProperties {
                allows_variable_requests: false,
                ..no_pod
            },
            ContainerProperties {
                origin: OriginKind::Sandbox,
                ..no_pod
            },
            pod,
            ContainerProperties {
                has_cdi_annotation: true,
                ..pod
            },
            ContainerProperties {
                is_trusted: true,
                ..pod
            },
            ContainerProperties {
                origin: OriginKind::Uncertain,
                ..no_pod
            },
        ]
    }

    /// Returns a decision in the words of the table.
    fn word(decision: Decision) -> &'static str {
        match decision {
            Decision::Ignored => "-",
            Decision::Request { .. } => "request",
            Decision::KubeletCheckpoints(
                UnrecordedDevicesRule::LimitToRecorded,
                AcceptedClaims::None,
            ) => "record",
            Decision::KubeletCheckpoints(
                UnrecordedDevicesRule::RequireRecorded,
                AcceptedClaims::None,
            ) => "promise",
            Decision::KubeletCheckpoints(
                UnrecordedDevicesRule::RefuseUnrecorded,
                AcceptedClaims::Recorded,
            ) => "exact",
            Decision::KubeletCheckpoints(
                UnrecordedDevicesRule::RefuseUnrecorded,
                AcceptedClaims::AllWithoutCheckpoint,
            ) => "exact, all claims",
            Decision::KubeletCheckpoints(
                UnrecordedDevicesRule::GrantRequested,
                AcceptedClaims::Recorded,
            ) => "part",
            Decision::KubeletCheckpoints(..) => "a use that the table does not have",
            Decision::NoDevice(_) => "no device",
            Decision::Refused(_) => "refused",
        }
    }

    #[test]
    fn every_caller_source_and_container_is_decided_as_the_tables_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md");
        let text = fs::read_to_string(path).unwrap();
        let (of_callers, of_containers) = (table(&text, "caller"), table(&text, "container"));
        assert_eq!(of_callers.len(), callers().len());
        assert_eq!(of_containers.len(), containers().len());
        let mut combinations = 0;
        for ((caller, has_request_hook), counted) in callers().iter().zip(&of_callers) {
            for (container, decided) in containers().iter().zip(&of_containers) {
                for (source, at) in SOURCES.into_iter().zip(1..) {
                    for has_sys_admin in [false, true] {
                        let properties = ContainerProperties {
                            has_request_hook: *has_request_hook,
                            has_sys_admin,
                            ..*container
                        };
                        let decision = authorize(caller, source, &properties);
                        let expected = match counted[at].as_str() {
                            "counts" => decided[at].as_str(),
                            uncounted => uncounted,
                        };
                        let case = format!("{}; {}; {source:?}", counted[0], decided[0]);
                        assert_eq!(word(decision), expected, "{case}");
                        if let Decision::Request {
                            allows_trusted_capabilities,
                            ..
                        } = decision
                        {
                            let may = decided[6] == "request"
                                || decided[6] == "CAP_SYS_ADMIN" && has_sys_admin;
                            assert_eq!(allows_trusted_capabilities, may, "{case}");
                        }
                        combinations += 1;
                    }
                }
            }
        }
        assert_eq!(combinations, 6 * 7 * 5 * 2);
    }
}
