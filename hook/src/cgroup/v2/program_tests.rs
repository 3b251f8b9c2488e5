//! Runs programs, old, rewritten and made anew, in a virtual machine that is
//! not ours, and compares the answers with a model and with our evaluator.

use proptest::prelude::*;

use super::assembler::enforce;
use super::evaluator;
use super::insn::{AluOp, Condition, Instruction, Operand, Reg, Size, Width};
use super::old_programs::{SHAPES, allow_everything, covers, deny_everything};
use super::request::Request;
use super::rewrite::{Verdict, judge};
use crate::cgroup::rule::{self, Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::sys::bpf::Insn;

/// Every kind and access, against numbers that rules name and others.
fn requests() -> Vec<Request> {
    let mut requests = Vec::new();
    for kind in [DeviceKind::Block, DeviceKind::Char] {
        for access in 0..=7 {
            for major in [1, 10, 11, 136] {
                for minor in [0, 3, 183, 184] {
                    requests.push(Request {
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

fn run(program: &[Insn], request: &Request) -> bool {
    let bytes = program.concat();
    let mut context = request.context();
    let machine = rbpf::EbpfVmRaw::new(Some(&bytes)).unwrap();
    match machine.execute_program(&mut context).unwrap() {
        0 => false,
        1 => true,
        result => panic!("result {result} for {request:?}"),
    }
}

/// What the list of rules means, one letter at a time.
fn model(rules: &SpecRules, request: &Request) -> bool {
    let of_device = |rule: &&SpecRule| {
        rule.kind.is_none_or(|kind| kind == request.kind)
            && rule.major.is_none_or(|major| major == request.major)
            && rule.minor.is_none_or(|minor| minor == request.minor)
    };
    let allows = |bit: u8| {
        let mut last_first = rules.rules().iter().rev().filter(of_device);
        last_first
            .find(|rule| rule.access.bits() & bit != 0)
            .is_some_and(|rule| rule.allow)
    };
    match request.access {
        // A request for nothing is admitted if the device is permitted at all.
        0 => rules
            .rules()
            .iter()
            .filter(of_device)
            .any(|rule| rule.allow),
        wanted => [1, 2, 4]
            .into_iter()
            .filter(|bit| wanted & bit != 0)
            .all(allows),
    }
}

fn spec(json: &str) -> SpecRules {
    let rules: Vec<oci_spec::runtime::LinuxDeviceCgroup> = serde_json::from_str(json).unwrap();
    SpecRules::of_container(&rules)
}

fn device(kind: DeviceKind, major: u32, minor: u32, access: &str) -> DeviceRule {
    DeviceRule::new(kind, major, minor, Access::parse(access).unwrap()).unwrap()
}

fn check_answers(what: &str, program: &[Insn], expected: impl Fn(&Request) -> bool) {
    for request in requests() {
        let expected = expected(&request);
        assert_eq!(run(program, &request), expected, "{what}: {request:?}");
        let evaluated = evaluator::admits(program, &request);
        assert_eq!(evaluated, Ok(expected), "{what}, evaluated: {request:?}");
    }
}

fn replacement(what: &str, old: &[Insn], rules: &[DeviceRule]) -> Vec<Insn> {
    match judge(old, rules) {
        Verdict::Replace(new) => new,
        verdict => panic!("{what}: {verdict:?}"),
    }
}

/// What a container has without any device of its own.
fn usual() -> SpecRules {
    spec(r#"[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","minor":184,"access":"r"}]"#)
}

fn permissions(rules: &SpecRules) -> Vec<SpecRule> {
    let allowing = rules.rules().iter().filter(|rule| rule.allow);
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
        vec![device(DeviceKind::Char, 10, 183, "rw")],
        vec![device(DeviceKind::Block, 10, 183, "r")],
        vec![
            device(DeviceKind::Char, 10, 183, "rwm"),
            device(DeviceKind::Char, 10, 184, "w"),
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
            assert_eq!(judge(&new, &rules), Verdict::Admits, "{}", shape.name);
        }
        let new = replacement("nothing", &deny_everything(), &rules);
        check_answers("nothing", &new, |request| covers(&added, request));
    }
}

#[test]
fn read_only_stays_read_only() {
    let program = replacement(
        "nothing",
        &deny_everything(),
        &[device(DeviceKind::Char, 10, 183, "r")],
    );
    for (access, admitted) in [("r", true), ("w", false), ("rw", false), ("rm", false)] {
        let request = Request {
            kind: DeviceKind::Char,
            access: Access::parse(access).unwrap().bits(),
            major: 10,
            minor: 183,
        };
        assert_eq!(run(&program, &request), admitted, "{access}");
    }
}

#[test]
fn one_rewrite_serves_all_rules() {
    let rules: Vec<_> = (0..40)
        .map(|minor| device(DeviceKind::Char, 195, minor, "rw"))
        .collect();
    let new = replacement("nothing", &deny_everything(), &rules);
    assert_eq!(judge(&new, &rules), Verdict::Admits);
    // Six to load the request, seven per rule, and the old program.
    assert_eq!(new.len(), 6 + 7 * rules.len() + 2);
}

#[test]
fn rules_that_are_admitted_are_not_added_again() {
    let (known, other) = (
        device(DeviceKind::Char, 10, 183, "r"),
        device(DeviceKind::Char, 10, 229, "r"),
    );
    let first = replacement("nothing", &deny_everything(), &[known]);
    let second = replacement("first", &first, &[known, other]);
    let direct = replacement("first", &first, &[other]);
    assert_eq!(second, direct);
}

#[test]
fn programs_made_anew_enforce_the_spec() {
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
        check_answers(json, &enforce(&rules), |request| model(&rules, request));

        let added = rules.and_allow(&[device(DeviceKind::Char, 10, 184, "rw")]);
        check_answers(json, &enforce(&added), |request| model(&added, request));
    }
}

#[test]
fn hidden_and_unknown_programs_are_unreadable() {
    let rules = [device(DeviceKind::Char, 10, 183, "r")];
    let mut calls_if_major_is_7 = replacement("nothing", &deny_everything(), &rules);
    let call = [0x85, 0, 0, 0, 5, 0, 0, 0];
    calls_if_major_is_7.push(call);

    for (what, program, asked, expected) in [
        ("all zeros", vec![[0; 8]; 8], "r", Verdict::Unreadable),
        ("nothing at all", vec![], "r", Verdict::Unreadable),
        (
            "a result that was never set",
            vec![Instruction::Exit.encode()],
            "r",
            Verdict::Unreadable,
        ),
        (
            "an endless loop",
            vec![Instruction::Goto { offset: -1 }.encode()],
            "r",
            Verdict::Unreadable,
        ),
        (
            "a jump out of it",
            vec![Instruction::Goto { offset: -2 }.encode()],
            "r",
            Verdict::Unreadable,
        ),
        (
            "a call on another path, nothing denied",
            calls_if_major_is_7.clone(),
            "r",
            Verdict::Admits,
        ),
        (
            "a call on another path",
            calls_if_major_is_7,
            "rw",
            Verdict::Unreadable,
        ),
    ] {
        let rules = [device(DeviceKind::Char, 10, 183, asked)];
        assert_eq!(judge(&program, &rules), expected, "{what}");
    }
}

fn any_kind() -> impl Strategy<Value = DeviceKind> {
    prop_oneof![Just(DeviceKind::Block), Just(DeviceKind::Char)]
}

fn any_access() -> impl Strategy<Value = Access> {
    prop::sample::subsequence(vec!["r", "w", "m"], 1..=3)
        .prop_map(|letters| Access::parse(&letters.concat()).unwrap())
}

prop_compose! {
    fn any_rule()(
        allow: bool,
        kind in prop::option::of(any_kind()),
        major in prop::option::of(0u32..3),
        minor in prop::option::of(0u32..3),
        access in any_access(),
    ) -> SpecRule {
        SpecRule { allow, kind, major, minor, access }
    }
}

prop_compose! {
    fn any_device_rule()(
        kind in any_kind(), major in 0u32..3, minor in 0u32..3, access in any_access(),
    ) -> DeviceRule {
        DeviceRule::new(kind, major, minor, access).unwrap()
    }
}

prop_compose! {
    fn any_request()(
        kind in any_kind(), access in 0u8..8, major in 0u32..4, minor in 0u32..4,
    ) -> Request {
        Request { kind, access, major, minor }
    }
}

proptest! {
    #[test]
    fn any_list_is_enforced(
        list in prop::collection::vec(any_rule(), 0..12),
        requests in prop::collection::vec(any_request(), 32),
    ) {
        let rules = SpecRules::of_list(list);
        let program = enforce(&rules);
        for request in requests {
            let expected = model(&rules, &request);
            prop_assert_eq!(run(&program, &request), expected, "{:?}", request);
            prop_assert_eq!(evaluator::admits(&program, &request), Ok(expected));
        }
    }

    #[test]
    fn any_program_is_widened_by_the_rules_alone(
        shape in 0..SHAPES.len(),
        old in prop::collection::vec(any_rule(), 0..8),
        added in prop::collection::vec(any_device_rule(), 1..6),
        requests in prop::collection::vec(any_request(), 32),
    ) {
        let program = (SHAPES[shape].program)(&old);
        let added = rule::merge(&added);
        let new = match judge(&program, &added) {
            Verdict::Replace(new) => new,
            Verdict::Admits => program,
            Verdict::Unreadable => return Err(TestCaseError::fail("unreadable")),
        };
        let granted: Vec<_> = added.iter().map(SpecRule::from).collect();
        for request in requests {
            let expected = covers(&old, &request) || covers(&granted, &request);
            prop_assert_eq!(run(&new, &request), expected, "{:?}", request);
            prop_assert_eq!(evaluator::admits(&new, &request), Ok(expected));
        }
    }

    #[test]
    fn any_bytes_are_judged(
        program in prop::collection::vec(any::<Insn>(), 0..40),
        rule in any_device_rule(),
    ) {
        // Most random programs are unreadable; none may hang or panic.
        let _ = judge(&program, &[rule]);
    }

    #[test]
    fn results_are_those_of_the_other_machine(
        body in prop::collection::vec(any_instruction(), 1..30),
        request in any_request(),
    ) {
        let set = |dst| Instruction::Alu {
            width: Width::W64,
            op: AluOp::Mov,
            dst,
            operand: Operand::Const(-7),
        };
        // No jump is longer than the row of exits.
        let program: Vec<Insn> = [Reg::R0, Reg::R2, Reg::R3]
            .map(set)
            .into_iter()
            .chain(body)
            .chain([Instruction::Exit; LONGEST_JUMP as usize + 1])
            .map(Instruction::encode)
            .collect();

        let bytes = program.concat();
        let mut context = request.context();
        let machine = rbpf::EbpfVmRaw::new(Some(&bytes)).unwrap();
        let expected = machine.execute_program(&mut context).unwrap();
        prop_assert_eq!(evaluator::result(&program, &request), Ok(expected));
    }
}

const LONGEST_JUMP: i16 = 3;

/// An instruction that works on numbers in R0, R2 and R3 and may skip others.
fn any_instruction() -> impl Strategy<Value = Instruction> {
    let reg = || prop::sample::select(vec![Reg::R0, Reg::R2, Reg::R3]);
    let width = || prop_oneof![Just(Width::W32), Just(Width::W64)];
    let operand = || {
        prop_oneof![
            reg().prop_map(Operand::Reg),
            (-3i32..40).prop_map(Operand::Const),
            any::<i32>().prop_map(Operand::Const),
        ]
    };
    // The other machine does not sign-extend constants in unsigned comparisons,
    // against RFC 9669; the kernel does.
    let compared = prop_oneof![
        reg().prop_map(Operand::Reg),
        (0i32..).prop_map(Operand::Const),
    ];
    let offset = || 0..=LONGEST_JUMP;
    let load = (0i16..3, reg()).prop_map(|(word, dst)| Instruction::Load {
        size: [Size::Byte, Size::Half, Size::Word][word as usize],
        dst,
        src: Reg::R1,
        offset: word * 4,
    });
    let ops = vec![
        AluOp::Add,
        AluOp::Sub,
        AluOp::Or,
        AluOp::And,
        AluOp::Xor,
        AluOp::Mov,
    ];
    let alu = (width(), prop::sample::select(ops), reg(), operand()).prop_map(
        |(width, op, dst, operand)| Instruction::Alu {
            width,
            op,
            dst,
            operand,
        },
    );
    // The kernel loads no shift by more than the width.
    let shifts = vec![AluOp::Lsh, AluOp::Rsh, AluOp::Arsh];
    let shift = (width(), prop::sample::select(shifts), reg(), 0i32..32).prop_map(
        |(width, op, dst, amount)| Instruction::Alu {
            width,
            op,
            dst,
            operand: Operand::Const(amount),
        },
    );
    let conditions = vec![
        Condition::Equal,
        Condition::Greater,
        Condition::GreaterOrEqual,
        Condition::AnyBit,
        Condition::NotEqual,
        Condition::SignedGreater,
        Condition::SignedGreaterOrEqual,
        Condition::Less,
        Condition::LessOrEqual,
        Condition::SignedLess,
        Condition::SignedLessOrEqual,
    ];
    let jump = (
        width(),
        prop::sample::select(conditions),
        reg(),
        compared,
        offset(),
    )
        .prop_map(
            |(width, condition, dst, operand, offset)| Instruction::Jump {
                width,
                condition,
                dst,
                operand,
                offset,
            },
        );
    let goto = offset().prop_map(|offset| Instruction::Goto { offset });
    prop_oneof![load, alu, shift, jump, goto]
}
