//! Who authorizes a request for devices: the whole decision, and nothing else is here. It is
//! pure. ARCHITECTURE.md ("Who authorizes a request") has it as two tables, which the test
//! below reads and compares for every combination.

use injection_plan::plan::RecordUse;

use crate::oci::CdiGrant;

/// Who has the plan made. It decides which requests count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// An engine that calls the hook for every container, or the wrapper of its runtime:
    /// variables and annotations count, but not for a class whose devices CDI specifications
    /// name.
    Engine,
    /// A hook of a CDI specification: only what specifications grant counts.
    Cdi(CdiGrant),
    /// A user who wants to see all of it.
    User,
    /// A user who changes a container that runs: only what the hook was called for counts.
    /// Nobody granted what the image of another container requests.
    Running,
    /// A user who attaches devices: only those count.
    Attach,
}

/// Where a request was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A variable, which any image can set.
    Variable,
    /// The device plugin's annotation.
    Annotation,
    /// The arguments of the hook in a CDI specification, which only root can write.
    Cdi,
    /// `boathook attach`.
    Attach,
    /// `boathook attach --force`.
    ForcedAttach,
}

/// The kinds of [`crate::trust::Origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginKind {
    NoPod,
    Sandbox,
    Pod,
    /// The container's cgroup and its engine's annotations do not agree.
    Uncertain,
}

/// What the decision depends on besides caller and source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerFacts {
    pub(crate) origin: OriginKind,
    /// config.json has a hook of ours that is called for the container's own requests.
    pub(crate) has_hook: bool,
    /// `allow_env_outside_kubernetes`.
    pub(crate) allows_variables: bool,
    /// `trusted_pods` names its pod.
    pub(crate) is_trusted: bool,
    /// An annotation names CDI devices.
    pub(crate) names_cdi_devices: bool,
    /// A process of the container may have CAP_SYS_ADMIN, by its config.json.
    pub(crate) is_sys_admin: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request does not count for this caller, or in such a container.
    NotCounted,
    /// The request itself is sufficient.
    Request {
        why: Reason,
        /// Whether it may have the class's trusted capabilities, too.
        trusted_capabilities: bool,
    },
    /// The kubelet's records decide: of allocated devices, and of claims.
    Records(RecordUse, ClaimUse),
    /// The container is started without a device.
    NoDevice(Reason),
    /// The container, or the user's command, is refused.
    Refused(Reason),
}

/// Which resource claims of a pod count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimUse {
    None,
    /// Those that the kubelet recorded.
    Recorded,
    /// The same, or all if the kubelet has no record of claims: one with another root directory
    /// has it elsewhere.
    WithoutRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    NoPod,
    NotAllowed,
    Sandbox,
    TrustedPod,
    Specification,
    Administrator,
    Force,
    Uncertain,
}

/// Whether a request from this source counts for the caller.
pub(crate) fn counts(caller: &Caller, source: SourceKind, has_hook: bool) -> bool {
    use SourceKind::{Annotation, Attach, Cdi, ForcedAttach, Variable};
    match (caller, source) {
        (Caller::Engine, Variable | Annotation) => true,
        (Caller::Cdi(_), Cdi) => true,
        (Caller::Engine | Caller::Cdi(_), _) => false,
        (Caller::User, _) => true,
        (Caller::Running, Variable | Annotation) => has_hook,
        (Caller::Running, Cdi | Attach | ForcedAttach) => true,
        (Caller::Attach, Attach | ForcedAttach) => true,
        (Caller::Attach, _) => false,
    }
}

/// Who authorizes a request from this source.
pub(crate) fn authorize(caller: &Caller, source: SourceKind, facts: &ContainerFacts) -> Decision {
    use OriginKind::{NoPod, Pod, Sandbox, Uncertain};
    use SourceKind::{Annotation, Attach, Cdi, ForcedAttach, Variable};
    if !counts(caller, source, facts.has_hook) {
        return Decision::NotCounted;
    }
    let request = |why| Decision::Request {
        why,
        // Outside pods an image's variable chooses a capability, and nobody else was asked.
        trusted_capabilities: facts.origin != NoPod || facts.is_sys_admin,
    };
    match (facts.origin, source) {
        (Uncertain, _) => Decision::Refused(Reason::Uncertain),
        // podman copies annotations from images.
        (NoPod | Sandbox, Annotation) => Decision::NotCounted,
        (NoPod, Attach | ForcedAttach) => request(Reason::Administrator),
        (_, ForcedAttach) => request(Reason::Force),
        (NoPod, Cdi) => request(Reason::Specification),
        (NoPod, Variable) if facts.allows_variables => request(Reason::NoPod),
        (NoPod, Variable) => Decision::NoDevice(Reason::NotAllowed),
        (Sandbox, Variable) => Decision::NoDevice(Reason::Sandbox),
        // The engine has put the nodes into config.json already, or a user waits for them.
        (Sandbox, Cdi | Attach) => Decision::Refused(Reason::Sandbox),
        (Pod, _) if facts.is_trusted => request(Reason::TrustedPod),
        (Pod, Variable) => Decision::Records(RecordUse::Whole, ClaimUse::None),
        (Pod, Annotation) => Decision::Records(RecordUse::Promised, ClaimUse::None),
        // Only root writes specifications, but the names of their devices may come from
        // others: CRI-O takes them from the pod's annotations and those of a restored image,
        // containerd before 2.1.9, 2.2.5 and 2.3.2 from a restored image
        // (GHSA-33vj-92qq-66hc), where config.json does not show it.
        (Pod, Cdi) if facts.names_cdi_devices => {
            Decision::Records(RecordUse::Exact, ClaimUse::Recorded)
        }
        (Pod, Cdi) => Decision::Records(RecordUse::Exact, ClaimUse::WithoutRecord),
        (Pod, Attach) => Decision::Records(RecordUse::Requested, ClaimUse::Recorded),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SOURCES: [SourceKind; 5] = [
        SourceKind::Variable,
        SourceKind::Annotation,
        SourceKind::Cdi,
        SourceKind::Attach,
        SourceKind::ForcedAttach,
    ];

    /// The rows of a table of ARCHITECTURE.md, by the first word of its head.
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

    /// A caller, and whether config.json has the hook.
    fn callers() -> [(Caller, bool); 6] {
        let grant = CdiGrant::parse("chips=0").unwrap();
        [
            (Caller::Engine, true),
            (Caller::Cdi(grant), false),
            (Caller::User, false),
            (Caller::Running, true),
            (Caller::Running, false),
            (Caller::Attach, true),
        ]
    }

    /// The containers of the table, in its order.
    fn containers() -> [ContainerFacts; 7] {
        let no_pod = ContainerFacts {
            origin: OriginKind::NoPod,
            has_hook: false,
            allows_variables: true,
            is_trusted: false,
            names_cdi_devices: false,
            is_sys_admin: false,
        };
        let pod = ContainerFacts {
            origin: OriginKind::Pod,
            ..no_pod
        };
        [
            no_pod,
            ContainerFacts {
                allows_variables: false,
                ..no_pod
            },
            ContainerFacts {
                origin: OriginKind::Sandbox,
                ..no_pod
            },
            pod,
            ContainerFacts {
                names_cdi_devices: true,
                ..pod
            },
            ContainerFacts {
                is_trusted: true,
                ..pod
            },
            ContainerFacts {
                origin: OriginKind::Uncertain,
                ..no_pod
            },
        ]
    }

    /// A decision in the words of the table.
    fn word(decision: Decision) -> &'static str {
        match decision {
            Decision::NotCounted => "-",
            Decision::Request { .. } => "request",
            Decision::Records(RecordUse::Whole, ClaimUse::None) => "record",
            Decision::Records(RecordUse::Promised, ClaimUse::None) => "promise",
            Decision::Records(RecordUse::Exact, ClaimUse::Recorded) => "exact",
            Decision::Records(RecordUse::Exact, ClaimUse::WithoutRecord) => "exact, all claims",
            Decision::Records(RecordUse::Requested, ClaimUse::Recorded) => "part",
            Decision::Records(..) => "a use that the table does not have",
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
        for ((caller, has_hook), counted) in callers().iter().zip(&of_callers) {
            for (container, decided) in containers().iter().zip(&of_containers) {
                for (source, at) in SOURCES.into_iter().zip(1..) {
                    for is_sys_admin in [false, true] {
                        let facts = ContainerFacts {
                            has_hook: *has_hook,
                            is_sys_admin,
                            ..*container
                        };
                        let decision = authorize(caller, source, &facts);
                        let expected = match counted[at].as_str() {
                            "counts" => decided[at].as_str(),
                            uncounted => uncounted,
                        };
                        let case = format!("{}; {}; {source:?}", counted[0], decided[0]);
                        assert_eq!(word(decision), expected, "{case}");
                        if let Decision::Request {
                            trusted_capabilities,
                            ..
                        } = decision
                        {
                            let may = decided[6] == "request"
                                || decided[6] == "CAP_SYS_ADMIN" && is_sys_admin;
                            assert_eq!(trusted_capabilities, may, "{case}");
                        }
                        combinations += 1;
                    }
                }
            }
        }
        assert_eq!(combinations, 6 * 7 * 5 * 2);
    }
}
