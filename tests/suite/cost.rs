//! The system calls of the hook have upper bounds: a change that costs more is seen where
//! it is made, and not on a busy machine weeks later. `make bench` measures times.

use std::fs::{self, File};

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::nothing_asked::NothingAsked;
use harness::reference_work::ReferenceWork;
use harness::rootfs::Rootfs;
use harness::{binaries, count, scratch};

use crate::lab::{Lab, with_lab};

/// For a container that requests nothing, with 300 variables, on a host with all classes, each
/// of which is opened, examined, read and closed. Without optimisation it takes 551.
const NOTHING_ASKED: u64 = 560;
/// For 5 device nodes, and 40 libraries with a link each and the loader's cache: 1176.
const REFERENCE_WORK: u64 = 1230;

#[test]
fn a_container_that_asks_for_nothing_costs_little() {
    if let Some(reason) = count::missing() {
        return skip::report(module_path!(), &reason);
    }
    let files = NothingAsked::new().unwrap();
    let calls = counted(|programs| {
        let mut hook = files.hook(&programs).unwrap();
        hook.stdin(File::open(files.state()).unwrap());
        assert!(hook.status().unwrap().success());
    });
    assert!(calls <= NOTHING_ASKED, "{calls}");
}

#[test]
fn the_reference_work_costs_little() {
    with_counts(|lab| {
        let calls = counted_in(lab, &ReferenceWork::new().unwrap());
        assert!(calls <= REFERENCE_WORK, "{calls}");
    });
}

/// Five times the libraries, and three times the nodes, cost less than five times
/// as much: nothing grows faster than the work.
#[test]
fn grows_no_faster_than_the_work() {
    const FACTOR: usize = 5;
    with_counts(|lab| {
        let usual = counted_in(lab, &ReferenceWork::new().unwrap());
        let more = ReferenceWork::with_size(16, FACTOR * ReferenceWork::LIBRARIES).unwrap();
        let more = counted_in(lab, &more);
        assert!(more < FACTOR as u64 * usual, "{usual} became {more}");
    });
}

fn with_counts(body: fn(&Lab)) {
    match count::missing() {
        Some(reason) => skip::report(module_path!(), &reason),
        None => with_lab(module_path!(), CgroupView::V1, body),
    }
}

/// What the hook executes for a container that gets all of the work.
fn counted_in(lab: &Lab, work: &ReferenceWork) -> u64 {
    counted(|programs| {
        let bundle = bundle(work, &programs);
        drop(lab.runc.create(&bundle).unwrap());
        let cache = fs::read(bundle.in_rootfs("/etc/ld.so.cache")).unwrap();
        let last = work.libraries().last().unwrap().soname();
        assert!(String::from_utf8_lossy(&cache).contains(&last));
    })
}

/// What the hook executes where `run` runs the last of these programs and arguments.
fn counted(run: impl Fn(Vec<String>)) -> u64 {
    let directory = scratch::directory("counts").unwrap();
    let log = directory.path().join("log");
    let mut programs = count::calls_to(&log);
    let hook = binaries::program("boathook-hook").unwrap();
    programs.push(hook.display().to_string());
    run(programs);
    count::calls(&log).unwrap()
}

fn bundle(work: &ReferenceWork, programs: &[String]) -> Bundle {
    let (first, others) = programs.split_first().unwrap();
    let config = work.config_file().display().to_string();
    // strace makes the hook slower, and so do other tests.
    let arguments = ["--config", &config, "--deadline", "300", "create-runtime"];
    let others = others.iter().map(String::as_str);
    let hook = others
        .chain(arguments)
        .fold(HookCommand::new(first.as_ref()), HookCommand::arg);
    Bundle::builder(Rootfs::Glibc)
        .hook(Stage::CreateRuntime, hook.timeout(300))
        .env(ReferenceWork::VARIABLE, "all")
        .build()
        .unwrap()
}
