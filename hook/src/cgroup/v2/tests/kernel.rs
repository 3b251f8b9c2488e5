//! Tests of programs in the running kernel, with a process in the cgroup. They need root,
//! cgroup2 and bpf(2), and run in a mount namespace of their own.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::runtime_programs::{SHAPES, allow_everything, deny_everything};
use crate::cgroup::error::CgroupError;
use crate::cgroup::report::{CgroupReport, RuleChangeOutcome};
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::SpecRules;
use crate::cgroup::tests::prober::{FUSE, HWRNG, Prober, TestCgroup, skip};
use crate::cgroup::v2::kernel::{Kernel, RunningKernel};
use crate::cgroup::v2::rewrite::{ProgramRewrite, rewrite_program};
use crate::cgroup::{DeviceCgroup, KernelMountPaths};
use crate::sys::bpf::{self, BPF_F_ALLOW_MULTI, Insn};

/// A cgroup2 in a mount namespace of this thread.
struct Cgroup2 {
    point: PathBuf,
}

impl Cgroup2 {
    /// Mounts cgroup2. Returns `None` and reports the reason if these tests cannot run here.
    fn mounted() -> Option<Self> {
        match Self::mount() {
            Ok(cgroup2) => Some(cgroup2),
            Err(errno) => {
                skip(&format!("no cgroup2 with device programs here: {errno}"));
                None
            }
        }
    }

    fn mount() -> Result<Self, Errno> {
        const NONE: Option<&str> = None;
        RunningKernel.load(&deny_everything(), &mut [])?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
        let point = tempfile::Builder::new()
            .prefix("boathook-cgroup2-")
            .tempdir()
            .unwrap()
            .keep();
        let cgroup2 = Self { point };
        mount(
            Some("none"),
            &cgroup2.point,
            Some("cgroup2"),
            MsFlags::empty(),
            NONE,
        )?;
        Ok(cgroup2)
    }

    fn device_cgroup(&self, prober: &Prober) -> DeviceCgroup {
        let roots = KernelMountPaths {
            cgroup_path: self.point.clone(),
            ..KernelMountPaths::default()
        };
        let found = DeviceCgroup::find(&roots, prober.pid()).unwrap().unwrap();
        assert!(matches!(found, DeviceCgroup::V2(_)), "{found:?}");
        found
    }
}

impl Drop for Cgroup2 {
    fn drop(&mut self) {
        let _ = umount2(&self.point, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.point);
    }
}

fn attach(dir: &Path, code: &[Insn], flags: u32) {
    let cgroup = RunningKernel.open_cgroup(dir).unwrap();
    let program = RunningKernel.load(code, &mut []).unwrap();
    RunningKernel
        .attach(&cgroup, &program, flags, None)
        .unwrap();
}

/// Returns a program of the named shape with the usual rules of a container, or one that
/// admits everything or nothing.
fn usual(shape: &str) -> Vec<Insn> {
    match SHAPES.iter().find(|it| it.name == shape) {
        Some(shape) => (shape.program)(SpecRules::from_spec(&[]).rules()),
        None if shape == "anything" => allow_everything(),
        None => deny_everything(),
    }
}

fn rule((major, minor): (u32, u32), access: &str) -> DeviceRule {
    let access = Access::parse(access).unwrap();
    DeviceRule::new(DeviceKind::Character, major, minor, access)
}

/// Returns the outcomes at one cgroup of the test. The other levels belong to the machine.
fn outcomes_at(dir: &Path, levels: &[CgroupReport]) -> Vec<RuleChangeOutcome> {
    let here = levels.iter().filter(|level| level.cgroup == dir);
    here.map(|level| level.outcome.clone()).collect()
}

fn is_rewritten(outcome: &RuleChangeOutcome) -> bool {
    matches!(outcome, RuleChangeOutcome::Rewritten { .. })
}

/// Allows hwrng where these programs deny it, and checks that no other device is affected.
fn check(of_slice: &[(&str, u32)], of_leaf: &[(&str, u32)], rewritten: [usize; 2]) {
    let Some(cgroup2) = Cgroup2::mounted() else {
        return;
    };
    let slice = TestCgroup::named(&cgroup2.point, ".slice").unwrap();
    let leaf = TestCgroup::new(&slice.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    assert!(prober.may_open("r", HWRNG), "denied before any program");
    for (dir, programs) in [(&slice.dir, of_slice), (&leaf.dir, of_leaf)] {
        for (name, flags) in programs {
            attach(dir, &usual(name), *flags);
        }
    }
    assert!(!prober.may_open("r", HWRNG), "admitted by the old programs");
    let cgroup = cgroup2.device_cgroup(&prober);
    let spec = SpecRules::from_spec(&[]);

    let report = cgroup.allow(&[rule(HWRNG, "r")], &spec).unwrap();

    assert!(prober.may_open("r", HWRNG), "{report:?}");
    assert!(!prober.may_open("rw", HWRNG), "r admits rw: {report:?}");
    assert!(!prober.may_open("r", FUSE), "{report:?}");
    assert!(prober.may_open("rw", (1, 3)), "null is lost: {report:?}");
    for (dir, count) in [&leaf.dir, &slice.dir].into_iter().zip(rewritten) {
        let outcomes = outcomes_at(dir, &report.cgroups);
        let found = outcomes.iter().filter(|outcome| is_rewritten(outcome));
        assert_eq!(found.count(), count, "{report:?}");
    }

    let again = cgroup.allow(&[rule(HWRNG, "r")], &spec).unwrap();
    assert!(
        !again
            .cgroups
            .iter()
            .any(|level| is_rewritten(&level.outcome)),
        "{again:?}"
    );

    let report = cgroup.allow(&[rule(FUSE, "rw")], &spec).unwrap();
    assert!(prober.may_open("rw", FUSE), "{report:?}");
    assert!(prober.may_open("r", HWRNG), "{report:?}");
    assert!(!prober.may_open("r", (10, 237)), "{report:?}");
}

#[test]
fn what_denies_is_rewritten_at_the_leaf_and_its_slice() {
    const MULTI: u32 = BPF_F_ALLOW_MULTI;
    const OVERRIDE: u32 = 1;
    type Programs = &'static [(&'static str, u32)];
    let cases: [(Programs, Programs, [usize; 2]); 7] = [
        (&[], &[("runc", MULTI)], [1, 0]),
        (&[], &[("runc", MULTI), ("systemd", MULTI)], [2, 0]),
        (&[("crun", MULTI)], &[("16-bit loads", MULTI)], [1, 1]),
        (&[("bare exit", MULTI)], &[("anything", MULTI)], [0, 1]),
        // Cgroups without BPF_F_ALLOW_MULTI have a single program.
        (&[], &[("32-bit jumps", 0)], [1, 0]),
        (&[], &[("32-bit jumps", OVERRIDE)], [1, 0]),
        // The program of the slice is overridden.
        (&[("nothing", OVERRIDE)], &[("runc", MULTI)], [1, 0]),
    ];
    for (of_slice, of_leaf, rewritten) in cases {
        println!("{of_leaf:?} below {of_slice:?}");
        check(of_slice, of_leaf, rewritten);
    }
}

/// A container in a container: the device is refused to the inner one, and the outer one can
/// open no more than before.
#[test]
fn an_enclosing_container_is_never_widened() {
    let Some(cgroup2) = Cgroup2::mounted() else {
        return;
    };
    let outer = TestCgroup::named(&cgroup2.point, ".scope").unwrap();
    let inner = TestCgroup::named(&outer.dir, ".scope").unwrap();
    let mut outer_process = Prober::in_cgroup(&outer.dir);
    let mut prober = Prober::in_cgroup(&inner.dir);
    attach(&outer.dir, &usual("runc"), BPF_F_ALLOW_MULTI);
    attach(&inner.dir, &usual("runc"), BPF_F_ALLOW_MULTI);
    let cgroup = cgroup2.device_cgroup(&prober);
    let spec = SpecRules::from_spec(&[]);

    let error = cgroup.allow(&[rule(HWRNG, "r")], &spec).unwrap_err();

    let error = error.to_string();
    assert!(error.contains(&*outer.dir.to_string_lossy()), "{error}");
    assert!(!prober.may_open("r", HWRNG), "{error}");
    assert!(!outer_process.may_open("r", HWRNG), "{error}");

    // The inner container gets the device as soon as the outer one has it.
    let of_outer = cgroup2.device_cgroup(&outer_process);
    of_outer.allow(&[rule(HWRNG, "r")], &spec).unwrap();
    cgroup.allow(&[rule(HWRNG, "r")], &spec).unwrap();
    assert!(prober.may_open("r", HWRNG));
    assert!(!prober.may_open("r", FUSE));
}

#[test]
fn the_verifier_takes_every_shape_and_shows_it_unchanged() {
    if let Err(errno) = RunningKernel.load(&deny_everything(), &mut []) {
        return skip(&format!("no device programs here: {errno}"));
    }
    for name in SHAPES.iter().map(|shape| shape.name) {
        let rules = [rule(HWRNG, "r"), rule(FUSE, "rwm")];
        let ProgramRewrite::Replacement(new) = rewrite_program(&usual(name), &rules) else {
            panic!("{name}: nothing to do");
        };
        let program = RunningKernel
            .load(&new, &mut [])
            .unwrap_or_else(|errno| panic!("{name}: {errno}"));
        assert_eq!(bpf::read_instructions(program.as_fd()), Ok(new), "{name}");
    }
}

#[test]
fn the_verifier_explains_its_refusal() {
    let exit = vec![crate::cgroup::v2::insn::Instruction::Exit.encode()];
    match crate::cgroup::v2::load::load_program(&RunningKernel, &exit) {
        Ok(_) => panic!("a program without a result was loaded"),
        Err(error) if error.errno == Errno::EPERM => skip("may not load programs"),
        Err(error) => assert!(error.log.contains("R0"), "{error:?}"),
    }
}

#[test]
fn without_capabilities_nothing_is_done() {
    let Some(cgroup2) = Cgroup2::mounted() else {
        return;
    };
    let leaf = TestCgroup::new(&cgroup2.point).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    attach(&leaf.dir, &usual("runc"), BPF_F_ALLOW_MULTI);
    let cgroup = cgroup2.device_cgroup(&prober);

    // The capabilities are dropped for this thread only.
    let held = caps::read(None, caps::CapSet::Effective).unwrap();
    caps::clear(None, caps::CapSet::Effective).unwrap();
    let report = cgroup.allow(&[rule(HWRNG, "r")], &SpecRules::default());
    caps::set(None, caps::CapSet::Effective, &held).unwrap();

    let report = report.unwrap();
    assert!(report.lacks_permission(), "{report:?}");
    assert!(!prober.may_open("r", HWRNG), "{report:?}");
}

/// Sets the sysctl that makes the kernel hide instructions, until the value is dropped.
struct Hardened {
    before: String,
}

impl Hardened {
    const SYSCTL: &str = "/proc/sys/net/core/bpf_jit_harden";

    fn set() -> Self {
        let before = fs::read_to_string(Self::SYSCTL).unwrap();
        fs::write(Self::SYSCTL, "2").unwrap();
        Self { before }
    }
}

impl Drop for Hardened {
    fn drop(&mut self) {
        fs::write(Self::SYSCTL, &self.before).unwrap();
    }
}

#[test]
#[ignore = "sets net.core.bpf_jit_harden for the whole machine: run it alone"]
fn hidden_programs_are_regenerated() {
    let Some(cgroup2) = Cgroup2::mounted() else {
        return;
    };
    let pod = TestCgroup::new(&cgroup2.point).unwrap();
    let leaf = TestCgroup::new(&pod.dir).unwrap();
    let mut prober = Prober::in_cgroup(&leaf.dir);
    let hardened = Hardened::set();
    attach(&pod.dir, &allow_everything(), BPF_F_ALLOW_MULTI);
    attach(&leaf.dir, &usual("runc"), BPF_F_ALLOW_MULTI);
    let cgroup = cgroup2.device_cgroup(&prober);
    // A process that may see kernel addresses would get blinded instructions instead of none.
    caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_SYSLOG).unwrap();
    let rules = [rule(FUSE, "r")];
    let report = cgroup.allow(&rules, &SpecRules::from_spec(&[])).unwrap();
    let outcomes = outcomes_at(&leaf.dir, &report.cgroups);
    assert!(
        matches!(outcomes[..], [RuleChangeOutcome::Regenerated { .. }]),
        "{report:?}"
    );
    assert!(report.may_still_deny(), "{report:?}");
    assert!(prober.may_open("r", FUSE), "{report:?}");
    assert!(!prober.may_open("r", HWRNG), "{report:?}");
    assert!(prober.may_open("rw", (1, 3)), "{report:?}");

    attach(&leaf.dir, &usual("systemd"), BPF_F_ALLOW_MULTI);
    let error = cgroup.allow(&[rule(HWRNG, "r")], &SpecRules::from_spec(&[]));
    assert!(
        matches!(error, Err(CgroupError::ForeignProgram { .. })),
        "{error:?}"
    );
    drop(hardened);
}
