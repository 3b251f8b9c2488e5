//! What the hook executes, compared with `cost/counts.toml`: a change that costs
//! more than a few percent is seen where it is made, and not on a busy machine
//! weeks later.
//!
//! The program of the tests is counted, which is not optimised: it is there
//! already, and an algorithm that gets slower gets slower in it too. `make bench`
//! measures the optimised one.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::PathBuf;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::nothing_asked::NothingAsked;
use harness::reference_work::ReferenceWork;
use harness::rootfs::Rootfs;
use harness::{binaries, count, scratch};
use serde::Deserialize;

use crate::lab::{Lab, with_lab};

/// How far a count may be from the one in the file, as a part of it.
const TOLERANCE: f64 = 0.05;

/// What is in the file.
#[derive(Debug, Deserialize)]
struct Counts {
    nothing_asked: Count,
    reference_work: Count,
}

/// What the hook executes for one container.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Count {
    instructions: u64,
    system_calls: u64,
}

#[test]
fn of_a_container_that_asks_for_nothing() {
    if let Some(reason) = missing() {
        return skip::report(module_path!(), &reason);
    }
    let files = NothingAsked::new().unwrap();
    let counted = counted(|programs| {
        let succeeds = || {
            let mut hook = files.hook(&programs).unwrap();
            hook.stdin(File::open(files.state()).unwrap());
            hook.status().unwrap().success()
        };
        // Under valgrind on a busy machine the hook may reach its deadline.
        assert!((0..5).any(|_| succeeds()));
    });
    compare("nothing_asked", counted);
}

#[test]
fn of_the_reference_work() {
    with_counts(|lab| {
        let work = ReferenceWork::new().unwrap();
        compare("reference_work", counted_in(lab, &work));
    });
}

/// Five times the libraries, and three times the nodes, cost less than five times
/// as much: nothing grows faster than the work.
#[test]
fn grows_no_faster_than_the_work() {
    const FACTOR: usize = 5;
    with_counts(|lab| {
        let usual = counted_in(lab, &ReferenceWork::new().unwrap());
        let more = ReferenceWork::of(16, FACTOR * ReferenceWork::LIBRARIES).unwrap();
        let more = counted_in(lab, &more);
        let factor = FACTOR as u64;
        assert!(
            more.instructions < factor * usual.instructions
                && more.system_calls < factor * usual.system_calls,
            "{usual:?} became {more:?}"
        );
    });
}

fn with_counts(body: fn(&Lab)) {
    match missing() {
        Some(reason) => skip::report(module_path!(), &reason),
        None => with_lab(module_path!(), CgroupView::V1, body),
    }
}

fn missing() -> Option<String> {
    let elsewhere = cfg!(not(all(target_arch = "x86_64", debug_assertions)));
    count::missing().or_else(|| {
        elsewhere.then(|| "the counts are those of x86-64 without optimisation".to_string())
    })
}

/// What the hook executes for a container that gets all of the work.
fn counted_in(lab: &Lab, work: &ReferenceWork) -> Count {
    counted(|programs| {
        let bundle = bundle(work, &programs);
        drop(lab.runc.create(&bundle).unwrap());
        let cache = fs::read(bundle.in_rootfs("/etc/ld.so.cache")).unwrap();
        let last = work.libraries().last().unwrap().soname();
        assert!(String::from_utf8_lossy(&cache).contains(&last));
    })
}

/// What the hook executes where `run` runs the last of these programs and arguments.
fn counted(run: impl Fn(Vec<String>)) -> Count {
    let directory = scratch::directory("counts").unwrap();
    let hook = binaries::program("boathook").unwrap();
    let hook = count::without_symbols(&hook, directory.path()).unwrap();
    let behind = |mut programs: Vec<String>| {
        programs.push(hook.display().to_string());
        programs
    };
    let log = directory.path().join("log");
    run(behind(count::instructions_to(&log)));
    let instructions = count::instructions(&log).unwrap();
    run(behind(count::calls_to(&log)));
    Count {
        instructions,
        system_calls: count::calls(&log).unwrap(),
    }
}

fn bundle(work: &ReferenceWork, programs: &[String]) -> Bundle {
    let (first, others) = programs.split_first().unwrap();
    let config = work.config_file().display().to_string();
    // Under valgrind the hook takes some seconds, and more beside other tests.
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

#[track_caller]
fn compare(name: &str, counted: Count) {
    let file = file();
    let text = fs::read_to_string(&file).unwrap();
    let counts: Counts = toml::from_str(&text).unwrap();
    let kept = match name {
        "nothing_asked" => counts.nothing_asked,
        _ => counts.reference_work,
    };
    let differs = |now: u64, kept: u64| (now as f64 / kept as f64 - 1.0).abs() > TOLERANCE;
    let mut difference = String::new();
    for (what, now, kept) in [
        ("instructions", counted.instructions, kept.instructions),
        ("system_calls", counted.system_calls, kept.system_calls),
    ] {
        if differs(now, kept) {
            writeln!(difference, "{what} = {now}, not {kept}").unwrap();
        }
    }
    assert!(
        difference.is_empty(),
        "[{name}] has changed by more than {:.0} %:\n{difference}if that is what the change is \
         worth, write it to {}",
        TOLERANCE * 100.0,
        file.display()
    );
}

fn file() -> PathBuf {
    binaries::source_tree().join("tests/suite/cost/counts.toml")
}
