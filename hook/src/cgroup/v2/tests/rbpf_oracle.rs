//! An independent virtual machine, and a model of the meaning of rules, for tests.

use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::cgroup::v2::request::AccessRequest;
use crate::sys::bpf::Insn;

/// Returns the value of R0 after the program has run.
pub(super) fn run_program(program: &[Insn], request: &AccessRequest) -> u64 {
    let bytes = program.concat();
    let mut context = request.to_context();
    let machine = rbpf::EbpfVmRaw::new(Some(&bytes)).unwrap();
    machine.execute_program(&mut context).unwrap()
}

/// Returns whether a program admits a request.
pub(super) fn run(program: &[Insn], request: &AccessRequest) -> bool {
    match run_program(program, request) {
        0 => false,
        1 => true,
        result => panic!("result {result} for {request:?}"),
    }
}

/// Returns whether a list of rules admits a request, with one access bit evaluated at a time.
pub(super) fn model(rules: &SpecRules, request: &AccessRequest) -> bool {
    let of_device = |rule: &&SpecRule| {
        rule.kind.is_none_or(|kind| kind == request.kind)
            && rule.major.is_none_or(|major| major == request.major)
            && rule.minor.is_none_or(|minor| minor == request.minor)
    };
    let allows = |bit: u8| {
        let mut last_first = rules.rules().iter().rev().filter(of_device);
        last_first
            .find(|rule| rule.access.bits() & bit != 0)
            .is_some_and(|rule| rule.is_allowed)
    };
    match request.access {
        // A request for no access is admitted if any access to the device is allowed.
        0 => rules
            .rules()
            .iter()
            .filter(of_device)
            .any(|rule| rule.is_allowed),
        wanted => [1, 2, 4]
            .into_iter()
            .filter(|bit| wanted & bit != 0)
            .all(allows),
    }
}
