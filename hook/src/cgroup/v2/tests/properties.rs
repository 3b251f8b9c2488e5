//! Properties that hold for any program and any rules.

use proptest::prelude::*;

use super::rbpf_oracle::{model, run, run_program};
use super::runtime_programs::{SHAPES, covers};
use crate::cgroup::rule::{self, Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::cgroup::v2::assembler::generate_program;
use crate::cgroup::v2::evaluator;
use crate::cgroup::v2::insn::{AluOp, Condition, Instruction, LoadSize, Operand, Reg, Width};
use crate::cgroup::v2::request::AccessRequest;
use crate::cgroup::v2::rewrite::{
    ProgramRewrite, find_rules_denied_by_program, revoke_rules, rewrite_program,
};
use crate::sys::bpf::Insn;

fn any_kind() -> impl Strategy<Value = DeviceKind> {
    prop_oneof![Just(DeviceKind::Block), Just(DeviceKind::Character)]
}

fn any_access() -> impl Strategy<Value = Access> {
    prop::sample::subsequence(vec!["r", "w", "m"], 1..=3)
        .prop_map(|letters| Access::parse(&letters.concat()).unwrap())
}

prop_compose! {
    fn any_rule()(
        is_allowed: bool,
        kind in prop::option::of(any_kind()),
        major in prop::option::of(0u32..3),
        minor in prop::option::of(0u32..3),
        access in any_access(),
    ) -> SpecRule {
        SpecRule { is_allowed, kind, major, minor, access }
    }
}

prop_compose! {
    fn any_device_rule()(
        kind in any_kind(), major in 0u32..3, minor in 0u32..3, access in any_access(),
    ) -> DeviceRule {
        DeviceRule::new(kind, major, minor, access)
    }
}

prop_compose! {
    fn any_request()(
        kind in any_kind(), access in 0u8..8, major in 0u32..4, minor in 0u32..4,
    ) -> AccessRequest {
        AccessRequest { kind, access, major, minor }
    }
}

proptest! {
    #[test]
    fn any_list_is_enforced(
        list in prop::collection::vec(any_rule(), 0..12),
        requests in prop::collection::vec(any_request(), 32),
    ) {
        let rules = SpecRules::from_rules(list);
        let program = generate_program(&rules);
        for request in requests {
            let expected = model(&rules, &request);
            prop_assert_eq!(run(&program, &request), expected, "{:?}", request);
            prop_assert_eq!(evaluator::allows_request(&program, &request), Ok(expected));
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
        let added = rule::merge_by_device(&added);
        let new = match rewrite_program(&program, &added) {
            ProgramRewrite::Replacement(new) => new,
            ProgramRewrite::Unneeded => program,
            ProgramRewrite::HiddenProgram | ProgramRewrite::UnsupportedProgram => return Err(TestCaseError::fail("unreadable")),
        };
        let granted: Vec<_> = added.iter().map(SpecRule::from).collect();
        for request in requests {
            let expected = covers(&old, &request) || covers(&granted, &request);
            prop_assert_eq!(run(&new, &request), expected, "{:?}", request);
            prop_assert_eq!(evaluator::allows_request(&new, &request), Ok(expected));
        }
    }

    /// Rules that were added in any order can be withdrawn in any order, and the remaining
    /// program decides as before.
    #[test]
    fn what_was_added_is_withdrawn_alone(
        shape in 0..SHAPES.len(),
        old in prop::collection::vec(any_rule(), 0..8),
        added in prop::collection::vec(any_device_rule(), 1..6),
        taken in prop::collection::vec(any::<bool>(), 6),
        requests in prop::collection::vec(any_request(), 32),
    ) {
        let program = (SHAPES[shape].program)(&old);
        let added = rule::merge_by_device(&added);
        let mut new = program.clone();
        // The rules are added one after the other, each only if the program denies it.
        for rule in &added {
            if let ProgramRewrite::Replacement(with) = rewrite_program(&new, &[*rule]) {
                new = with;
            }
        }
        let (taken, left): (Vec<_>, Vec<_>) =
            added.iter().zip(taken).partition(|(_, taken)| *taken);
        let taken: Vec<_> = taken.into_iter().map(|(rule, _)| *rule).collect();
        let left: Vec<_> = left.into_iter().map(|(rule, _)| SpecRule::from(rule)).collect();
        let without = revoke_rules(&new, &taken, &[]).unwrap_or_else(|| new.clone());
        for request in requests {
            let expected = covers(&old, &request) || covers(&left, &request);
            prop_assert_eq!(run(&without, &request), expected, "{:?}", request);
        }
        // After any number of repetitions, at most the loading of the registers remains.
        let mut program = program;
        let most = program.len() + 6;
        for _ in 0..3 {
            let ProgramRewrite::Replacement(with) = rewrite_program(&program, &added) else { break };
            program = revoke_rules(&with, &added, &[]).unwrap();
            prop_assert!(program.len() <= most);
            prop_assert_eq!(revoke_rules(&program, &added, &[]), None);
        }
    }

    /// A device that the runtime's own program admits is refused by one block, and nothing
    /// else is refused. The device can be admitted again.
    #[test]
    fn what_the_spec_allows_is_withdrawn_too(
        shape in 0..SHAPES.len(),
        old in prop::collection::vec(any_rule(), 0..8),
        taken in prop::collection::vec(any_device_rule(), 1..4),
        requests in prop::collection::vec(any_request(), 32),
    ) {
        let program = (SHAPES[shape].program)(&old);
        let taken = rule::merge_by_device(&taken);
        let without = revoke_rules(&program, &taken, &taken).unwrap_or_else(|| program.clone());
        prop_assert_eq!(revoke_rules(&without, &taken, &taken), None);
        let with = match rewrite_program(&without, &taken) {
            ProgramRewrite::Replacement(with) => with,
            _ => without.clone(),
        };
        let allowed: Vec<_> = taken.iter().map(SpecRule::from).collect();
        for request in requests {
            let is_of = |rule: &&DeviceRule| {
                (rule.kind(), rule.major(), rule.minor())
                    == (request.kind, request.major, request.minor)
            };
            let refused = taken.iter().find(is_of).map_or(0, |rule| rule.access().bits());
            let expected = covers(&old, &request) && request.access & refused == 0;
            if request.access != 0 {
                prop_assert_eq!(run(&without, &request), expected, "{:?}", request);
                let again = expected || covers(&allowed, &request);
                prop_assert_eq!(run(&with, &request), again, "{:?}", request);
            }
        }
    }

    /// The block of a refusal comes before the blocks that were added until then.
    #[test]
    fn what_was_added_before_a_refusal_is_withdrawn(
        shape in 0..SHAPES.len(),
        of_spec in any_device_rule(),
        added in any_device_rule(),
    ) {
        prop_assume!(of_spec.number != added.number);
        let program = (SHAPES[shape].program)(&[SpecRule::from(&of_spec)]);
        let ProgramRewrite::Replacement(with) = rewrite_program(&program, &[added]) else {
            return Err(TestCaseError::reject("nothing was added"));
        };
        let refusing = revoke_rules(&with, &[of_spec], &[of_spec]).unwrap();
        prop_assert_eq!(find_rules_denied_by_program(&refusing, &[of_spec, added]), Ok(vec![of_spec]));
        let without = revoke_rules(&refusing, &[added], &[]);
        let without = without.unwrap_or(refusing);
        prop_assert_eq!(find_rules_denied_by_program(&without, &[added]), Ok(vec![added]));
    }

    #[test]
    fn any_bytes_are_judged(
        program in prop::collection::vec(any::<Insn>(), 0..40),
        rule in any_device_rule(),
    ) {
        // Most random programs are unreadable. None may cause a hang or a panic.
        let _ = rewrite_program(&program, &[rule]);
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
        // No jump is longer than the row of exit instructions at the end.
        let program: Vec<Insn> = [Reg::R0, Reg::R2, Reg::R3]
            .map(set)
            .into_iter()
            .chain(body)
            .chain([Instruction::Exit; LONGEST_JUMP as usize + 1])
            .map(Instruction::encode)
            .collect();

        let expected = run_program(&program, &request);
        prop_assert_eq!(evaluator::run_program(&program, &request), Ok(expected));
    }
}

const LONGEST_JUMP: i16 = 3;

/// Returns an instruction that works on numbers in R0, R2 and R3 and may jump forward.
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
    // The other machine does not sign-extend constants in unsigned comparisons, as RFC 9669
    // requires and the kernel does.
    let compared = prop_oneof![
        reg().prop_map(Operand::Reg),
        (0i32..).prop_map(Operand::Const),
    ];
    let offset = || 0..=LONGEST_JUMP;
    let load = (0i16..3, reg()).prop_map(|(word, dst)| Instruction::Load {
        size: [LoadSize::Byte, LoadSize::Half, LoadSize::Word][word as usize],
        dst,
        src: Reg::R1,
        offset: word * 4,
    });
    let ops = {
        use AluOp::{Add, And, Mov, Or, Sub, Xor};
        vec![Add, Sub, Or, And, Xor, Mov]
    };
    let alu = (width(), prop::sample::select(ops), reg(), operand()).prop_map(
        |(width, op, dst, operand)| Instruction::Alu {
            width,
            op,
            dst,
            operand,
        },
    );
    // The kernel loads no program that shifts by more than the width.
    let shifts = vec![AluOp::Lsh, AluOp::Rsh, AluOp::Arsh];
    let shift = (width(), prop::sample::select(shifts), reg(), 0i32..32).prop_map(
        |(width, op, dst, amount)| Instruction::Alu {
            width,
            op,
            dst,
            operand: Operand::Const(amount),
        },
    );
    let conditions = {
        use Condition::*;
        let signed = [
            SignedGreater,
            SignedGreaterOrEqual,
            SignedLess,
            SignedLessOrEqual,
        ];
        let unsigned = [Greater, GreaterOrEqual, Less, LessOrEqual];
        [&[Equal, NotEqual, AnyBitSet][..], &signed, &unsigned].concat()
    };
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
