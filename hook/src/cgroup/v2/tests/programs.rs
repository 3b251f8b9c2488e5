//! Runs old, rewritten and regenerated programs in an independent virtual machine, and
//! compares the results with a model and with the evaluator.

use super::rbpf_oracle::{model, run};
use super::runtime_programs::{SHAPES, allow_everything, covers, deny_everything};
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::cgroup::v2::assembler::generate_program;
use crate::cgroup::v2::evaluator;
use crate::cgroup::v2::insn::Instruction;
use crate::cgroup::v2::request::AccessRequest;
use crate::cgroup::v2::rewrite::{ProgramRewrite, rewrite_program};
use crate::sys::bpf::Insn;

/// Returns requests of every kind and access, with numbers that the rules name and with
/// others.
fn requests() -> Vec<AccessRequest> {
    let mut requests = Vec::new();
    for kind in [DeviceKind::Block, DeviceKind::Character] {
        for access in 0..=7 {
            for major in [1, 10, 11, 136] {
                for minor in [0, 3, 183, 184, 200] {
                    requests.push(AccessRequest {
                        kind,
                        access,
                        major,
                        minor,
                    });
                }
            }
        }
    }
    requests
}

fn spec(json: &str) -> SpecRules {
    let rules: Vec<oci_spec::runtime::LinuxDeviceCgroup> = serde_json::from_str(json).unwrap();
    SpecRules::from_spec(&crate::oci::devices::convert_rules(&rules))
}

fn device(kind: DeviceKind, major: u32, minor: u32, access: &str) -> DeviceRule {
    DeviceRule::new(kind, major, minor, Access::parse(access).unwrap())
}

fn check_answers(what: &str, program: &[Insn], expected: impl Fn(&AccessRequest) -> bool) {
    for request in requests() {
        let expected = expected(&request);
        assert_eq!(run(program, &request), expected, "{what}: {request:?}");
        let evaluated = evaluator::allows_request(program, &request);
        assert_eq!(evaluated, Ok(expected), "{what}, evaluated: {request:?}");
    }
}

fn replacement(what: &str, old: &[Insn], rules: &[DeviceRule]) -> Vec<Insn> {
    match rewrite_program(old, rules) {
        ProgramRewrite::Replacement(new) => new,
        verdict => panic!("{what}: {verdict:?}"),
    }
}

/// Returns the rules of a container without any device of its own.
fn usual() -> SpecRules {
    spec(r#"[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","minor":184,"access":"r"}]"#)
}

fn permissions(rules: &SpecRules) -> Vec<SpecRule> {
    let allowing = rules.rules().iter().filter(|rule| rule.is_allowed);
    allowing.copied().collect()
}

#[test]
fn old_programs_mean_what_they_should() {
    let rules = permissions(&usual());
    for shape in SHAPES {
        check_answers(shape.name, &(shape.program)(&rules), |request| {
            covers(&rules, request)
        });
    }
    check_answers("nothing", &deny_everything(), |_| false);
    check_answers("everything", &allow_everything(), |_| true);
}

#[test]
fn rewritten_programs_admit_the_rules_and_nothing_else() {
    let old = permissions(&usual());
    for rules in [
        vec![device(DeviceKind::Character, 10, 183, "rw")],
        vec![device(DeviceKind::Block, 10, 183, "r")],
        vec![
            device(DeviceKind::Character, 10, 183, "rwm"),
            device(DeviceKind::Character, 10, 184, "w"),
            device(DeviceKind::Block, 11, 0, "rm"),
        ],
    ] {
        let added: Vec<_> = rules.iter().map(SpecRule::from).collect();
        for shape in SHAPES {
            let program = (shape.program)(&old);
            let new = replacement(shape.name, &program, &rules);
            check_answers(shape.name, &new, |request| {
                covers(&old, request) || covers(&added, request)
            });
            assert_eq!(
                rewrite_program(&new, &rules),
                ProgramRewrite::Unneeded,
                "{}",
                shape.name
            );
        }
        let new = replacement("nothing", &deny_everything(), &rules);
        check_answers("nothing", &new, |request| covers(&added, request));
    }
}

#[test]
fn one_rewrite_serves_all_rules() {
    let rules: Vec<_> = (0..40)
        .map(|minor| device(DeviceKind::Character, 195, minor, "rw"))
        .collect();
    let new = replacement("nothing", &deny_everything(), &rules);
    assert_eq!(rewrite_program(&new, &rules), ProgramRewrite::Unneeded);
    // The program has six instructions that load the request, seven per rule, and the two of
    // the old program.
    assert_eq!(new.len(), 6 + 7 * rules.len() + 2);
}

#[test]
fn rules_that_are_admitted_are_not_added_again() {
    let (known, other) = (
        device(DeviceKind::Character, 10, 183, "r"),
        device(DeviceKind::Character, 10, 229, "r"),
    );
    let first = replacement("nothing", &deny_everything(), &[known]);
    let second = replacement("first", &first, &[known, other]);
    let direct = replacement("first", &first, &[other]);
    assert_eq!(second, direct);
}

#[test]
fn regenerated_programs_enforce_the_spec() {
    for json in [
        "[]",
        r#"[{"allow":true,"access":"rwm"}]"#,
        r#"[{"allow":true,"access":"rwm"},{"allow":false,"type":"c","major":10,"access":"w"}]"#,
        r#"[{"allow":false,"access":"rwm"},
            {"allow":true,"type":"c","major":10,"minor":183,"access":"r"},
            {"allow":true,"type":"c","major":-1,"minor":183,"access":"w"},
            {"allow":false,"type":"b","access":"m"}]"#,
        r#"[{"allow":true,"type":"c","major":10,"minor":183,"access":"rw"},
            {"allow":false,"access":"rwm"}]"#,
    ] {
        let rules = spec(json);
        check_answers(json, &generate_program(&rules), |request| {
            model(&rules, request)
        });

        let added = rules.with_allowed_rules(&[device(DeviceKind::Character, 10, 184, "rw")]);
        check_answers(json, &generate_program(&added), |request| {
            model(&added, request)
        });
    }
}

#[test]
fn hidden_and_unknown_programs_are_unreadable() {
    let rules = [device(DeviceKind::Character, 10, 183, "r")];
    let mut calls_if_major_is_7 = replacement("nothing", &deny_everything(), &rules);
    let call = [0x85, 0, 0, 0, 5, 0, 0, 0];
    calls_if_major_is_7.push(call);

    let one = |instruction: Instruction| vec![instruction.encode()];
    let goto = |offset| one(Instruction::Goto { offset });
    let unset = one(Instruction::Exit);
    let call_elsewhere = calls_if_major_is_7.clone();
    use ProgramRewrite::{HiddenProgram, Unneeded, UnsupportedProgram};
    for (what, program, asked, expected) in [
        ("all zeros", vec![[0; 8]; 8], "r", HiddenProgram),
        ("nothing at all", vec![], "r", HiddenProgram),
        (
            "a result that was never set",
            unset,
            "r",
            UnsupportedProgram,
        ),
        ("an endless loop", goto(-1), "r", UnsupportedProgram),
        ("a jump out of it", goto(-2), "r", UnsupportedProgram),
        (
            "a call elsewhere, nothing denied",
            call_elsewhere,
            "r",
            Unneeded,
        ),
        (
            "a call elsewhere",
            calls_if_major_is_7,
            "rw",
            UnsupportedProgram,
        ),
    ] {
        let rules = [device(DeviceKind::Character, 10, 183, asked)];
        assert_eq!(rewrite_program(&program, &rules), expected, "{what}");
    }
}

/// Returns a program as a kernel showed it (`bpftool prog dump xlated id N file F`).
fn recorded(bytes: &[u8]) -> Vec<Insn> {
    let instructions = bytes.chunks_exact(size_of::<Insn>());
    instructions.map(|insn| insn.try_into().unwrap()).collect()
}

#[test]
#[cfg(target_endian = "little")]
fn real_programs_are_understood() {
    let granted =
        |rules: &[DeviceRule]| permissions(&SpecRules::from_spec(&[]).with_allowed_rules(rules));
    let tun = device(DeviceKind::Character, 10, 200, "rwm");
    let hwrng = device(DeviceKind::Character, 10, 183, "rw");
    // The program of a container without a request. runc allows tun, on which Boathook does
    // not rely.
    let runc = recorded(include_bytes!(
        "../../../../testdata/device-programs/runc-1.1.5.xlated"
    ));
    let runc_allows = granted(&[tun]);
    check_answers("runc", &runc, |request| covers(&runc_allows, request));
    // The program of the container's scope after hwrng was added to DeviceAllow.
    let systemd = recorded(include_bytes!(
        "../../../../testdata/device-programs/systemd-252.xlated"
    ));
    let systemd_allows = granted(&[tun, hwrng]);
    check_answers("systemd", &systemd, |request| {
        covers(&systemd_allows, request)
    });

    let another = device(DeviceKind::Character, 10, 184, "rw");
    for (what, old, allows) in [
        ("runc", runc, runc_allows),
        ("systemd", systemd, systemd_allows),
    ] {
        let new = replacement(what, &old, &[hwrng, another]);
        let added = [SpecRule::from(&hwrng), SpecRule::from(&another)];
        check_answers(what, &new, |request| {
            covers(&allows, request) || covers(&added, request)
        });
    }
}
