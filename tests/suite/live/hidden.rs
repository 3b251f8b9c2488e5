//! A kernel that hides device programs (`net.core.bpf_jit_harden=2`), on cgroup v2. That is set
//! for the whole machine, so here a test and all that it starts see another file in its place,
//! and a filter of system calls shows them nothing of any program.

use std::fs;

use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;
use harness::scratch;
use harness::surroundings::leave_mount_namespace;
use nix::mount::{MsFlags, mount};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use super::follow::{self, Follower, followed, may_open, plug_in, unplug, with_device};
use super::{attached, boathook, done, plain, reads, records};
use crate::attacks::live_containers;
use crate::lab::{Lab, STAGE, granting, requesting, with_lab};
use crate::said::assert_says;

const SETTING: &str = "/proc/sys/net/core/bpf_jit_harden";

/// `BPF_OBJ_GET_INFO_BY_FD`.
const SHOW: u64 = 15;

macro_rules! where_programs_are_hidden {
    ($($name:ident = $body:path),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                with_lab(concat!(module_path!(), "::", stringify!($name)), CgroupView::V2, |lab| {
                    hide();
                    $body(lab);
                });
            }
        )+
    };
}

where_programs_are_hidden!(
    what_was_attached_goes_and_what_the_hook_gave_stays = attached_beside_the_hooks,
    a_failed_attachment_leaves_no_rule = failed,
    a_followed_device_takes_no_other_with_it = followed_beside_the_hooks,
    an_update_is_made_up_for = updated,
    two_devices_that_need_the_same = shared,
    two_calls_of_the_hook_add_up = called_twice,
    nothing_is_done_twice = attached::nothing_is_done_by_a_dry_run_or_twice,
    what_the_hook_gave_stays = attached::what_the_hook_gave_stays,
    one_that_comes_back = follow::a_device_that_comes_back_with_another_number_is_there_again,
    links_and_names_stay_right = follow::links_and_names_stay_right,
    what_cannot_be_taken_away = live_containers::what_cannot_be_taken_away_keeps_no_rule,
);

fn hide() {
    hide_programs();
    leave_mount_namespace().unwrap();
    let directory = scratch::directory("harden").unwrap();
    let file = directory.path().join("value");
    fs::write(&file, "2\n").unwrap();
    let none: Option<&str> = None;
    mount(Some(&file), SETTING, none, MsFlags::MS_BIND, none).unwrap();
}

/// As of a kernel whose setting was changed since the container's start.
fn hide_programs() {
    let show = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, SHOW);
    let rule = SeccompRule::new(vec![show.unwrap()]).unwrap();
    let filter = SeccompFilter::new(
        [(libc::SYS_bpf, vec![rule])].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(0),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}

const OTHER: usize = DemoHost::UNLIKE;

/// A container that the hook gave a device of another number than that which is attached.
fn with_another(host: &DemoHost) -> Bundle {
    let device = format!("npu-{OTHER}");
    with_device(host, &device).build().unwrap()
}

fn attached_beside_the_hooks(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for bundle in [
        plain(Rootfs::Busybox).build().unwrap(),
        with_device(&host, "void").build().unwrap(),
        with_another(&host),
    ] {
        let running = lab.start(&bundle);
        let before = may_open(&running, &host, OTHER);
        let recorded = records(&host);
        let id = bundle.id();
        done(lab, &host, &["attach", id, "dummy-npu=3"]);
        assert_eq!(reads(&running, 3), Some(Access::Granted));
        assert_eq!(may_open(&running, &host, OTHER), before);
        let ran = boathook(lab, &host, &["detach", id]).success().unwrap();
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(!may_open(&running, &host, 3), "the rule is left");
        assert_eq!(may_open(&running, &host, OTHER), before);
        assert_eq!(records(&host), recorded);
    }
}

fn failed(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = with_another(&host);
    let running = lab.start(&bundle);
    running.output(&["mkdir", "/dev/dummy-npu3"]).unwrap();
    let ran = boathook(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert!(ran.stderr.contains("is a directory"), "{ran:?}");
    assert!(!may_open(&running, &host, 3), "the rule is left");
    assert!(may_open(&running, &host, OTHER));
    assert_eq!(reads(&running, OTHER), Some(Access::Granted));
}

/// The devices that the hook gave are not recorded: programs were shown then.
#[test]
fn what_is_not_known_is_not_made_again() {
    with_lab(module_path!(), CgroupView::V2, |lab| {
        let host = DemoHost::new().unwrap();
        let bundle = with_another(&host);
        let running = lab.start(&bundle);
        let id = bundle.id();
        done(lab, &host, &["attach", id, "dummy-npu=3"]);
        hide_programs();
        for arguments in [&["detach", id][..], &["attach", id, "dummy-npu=4"]] {
            let ran = boathook(lab, &host, arguments);
            assert_eq!(ran.status.code(), Some(6), "{ran:?}");
            assert_says(
                &ran.stderr,
                &["hides the container's device program", "bpf_jit_harden"],
            );
            for index in [3, OTHER] {
                assert_eq!(reads(&running, index), Some(Access::Granted));
            }
            assert_eq!(reads(&running, 4), None);
            assert_eq!(records(&host), [id]);
        }
    });
}

/// The class of the other device is not followed.
fn followed_beside_the_hooks(lab: &Lab) {
    let host = live_containers::chips();
    host.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "CHIPS", "chip-7");
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    let _follower = Follower::start(lab, &host);
    let is_there = || may_open(&running, &host, 3);
    for _ in 0..2 {
        assert!(is_there());
        unplug(&host, 3);
        assert!(wait_until(|| !is_there()), "the rule is left");
        assert!(may_open(&running, &host, OTHER));
        plug_in(&host, 3, 3);
        assert!(wait_until(is_there));
        assert!(may_open(&running, &host, OTHER));
    }
    done(lab, &host, &["detach", bundle.id()]);
    assert!(!is_there(), "the rule is left");
    assert!(may_open(&running, &host, OTHER));
}

/// A runtime has set the rules again, as its specification has them, and then a limit.
fn updated(lab: &Lab) {
    let host = followed();
    let bundle = with_device(&host, "npu-3").build().unwrap();
    let running = lab.start(&bundle);
    let path = host.root().join("run/boathook/attached").join(bundle.id());
    let record = fs::read_to_string(&path).unwrap();
    let (major, minor) = host.device(OTHER).number();
    // As if it had been given once.
    let rule = format!(r#""rules":[{{"rule":"c {major}:{minor} rw","for":[]}},"#);
    fs::write(&path, record.replace(r#""rules":["#, &rule)).unwrap();
    assert!(!may_open(&running, &host, OTHER));
    let _follower = Follower::start(lab, &host);
    assert!(wait_until(|| may_open(&running, &host, OTHER)));
    assert_eq!(reads(&running, 3), Some(Access::Granted));
}

/// Both have the number, and only the first was recorded to have it allowed.
fn shared(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    for device in ["dummy-npu=3", "dummy-npu=4"] {
        done(lab, &host, &["attach", bundle.id(), device]);
    }
    done(lab, &host, &["detach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(reads(&running, 4), Some(Access::Granted));
    done(lab, &host, &["detach", bundle.id()]);
    assert!(!may_open(&running, &host, 3), "the rule is left");
    assert!(records(&host).is_empty());
}

/// For CDI, and for what the container requests itself.
fn called_twice(lab: &Lab) {
    let host = live_containers::chips();
    let bundle = requesting(&host, Rootfs::Busybox, "CHIPS", "chip-7");
    let bundle = bundle.hook(STAGE, granting(&host, "dummy-npu=npu-3"));
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let both = || [3, OTHER].map(|index| may_open(&running, &host, index));
    assert_eq!(both(), [true; 2]);
    done(lab, &host, &["attach", bundle.id(), "chips=3"]);
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(both(), [true; 2]);
}
