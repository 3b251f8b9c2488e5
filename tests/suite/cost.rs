//! The system calls of the hook have upper bounds: a change that costs more is seen where
//! it is made, and not on a busy machine weeks later. `make bench` measures times.

use std::fs::{self, File};
use std::path::Path;

use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::recorded_host::RecordedHost;
use harness::reference_work::ReferenceWork;
use harness::requestless_bundle::RequestlessBundle;
use harness::rootfs::Rootfs;
use harness::{binaries, count, scratch};

use crate::lab::{Lab, with_lab};

/// For a container that requests nothing, with 300 variables, on a host with all classes. The class
/// index has them, and each class file is only examined. With 87 classes, without optimisation, it
/// takes 219 (545 without the index).
const NOTHING_ASKED: u64 = 225;
/// For 5 device nodes, the loader's cache, and 40 libraries with a link each beside them and in the
/// image's library directory: 1174.
const REFERENCE_WORK: u64 = 1185;
/// For one of two GPUs with the recorded driver's files and all classes, for the capabilities that
/// CUDA images request (1245) and for all (2451). Without optimisation a fifth of them are fcntl(2),
/// by which the standard library checks each descriptor that it closes.
const GPU: [(&str, u64); 2] = [("compute,utility", 1260), ("all", 2465)];

#[test]
fn a_container_that_asks_for_nothing_costs_little() {
    if let Some(reason) = count::missing() {
        return skip::report(module_path!(), &reason);
    }
    let files = RequestlessBundle::new().unwrap();
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

/// The class that most people use, with the files of a driver that a class searches in the
/// directories of many distributions.
#[test]
fn a_gpu_costs_little() {
    with_counts(|lab| {
        let recorded = "device-class/testdata/nvidia-gpu/h200/host.txt";
        let recording = fs::read_to_string(binaries::source_tree().join(recorded)).unwrap();
        for (capabilities, limit) in GPU {
            let host = RecordedHost::new("nvidia-gpu", &recording).unwrap();
            host.install_all_shipped_classes().unwrap();
            let calls = counted(|programs| {
                let container = container(&host.config_file(), &programs)
                    .env("NVIDIA_VISIBLE_DEVICES", "0")
                    .env("NVIDIA_DRIVER_CAPABILITIES", capabilities);
                drop(lab.runc.create(&container.build().unwrap()).unwrap());
            });
            println!("{capabilities}: {calls} system calls");
            assert!(calls <= limit, "{capabilities}: {calls}");
        }
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

/// Returns the number of instructions of the hook for a container that gets all of the work.
fn counted_in(lab: &Lab, work: &ReferenceWork) -> u64 {
    counted(|programs| {
        let container = container(&work.config_file(), &programs);
        let bundle = container
            .env(ReferenceWork::VARIABLE, "all")
            .build()
            .unwrap();
        drop(lab.runc.create(&bundle).unwrap());
        let cache = fs::read(bundle.in_rootfs("/etc/ld.so.cache")).unwrap();
        let last = work.libraries().last().unwrap().soname();
        assert!(String::from_utf8_lossy(&cache).contains(&last));
    })
}

/// Returns the number of instructions of the hook, which `run` starts by these programs and
/// arguments.
fn counted(run: impl Fn(Vec<String>)) -> u64 {
    let directory = scratch::directory("counts").unwrap();
    let log = directory.path().join("log");
    let mut programs = count::calls_to(&log);
    let hook = binaries::program("boathook-hook").unwrap();
    programs.push(hook.display().to_string());
    run(programs);
    count::calls(&log).unwrap()
}

/// A container for which the last of these programs is executed as the hook, by the others.
fn container(config: &Path, programs: &[String]) -> BundleBuilder {
    let (first, others) = programs.split_first().unwrap();
    let config = config.display().to_string();
    // strace makes the hook slower, and so do other tests.
    let arguments = ["--config", &config, "--deadline", "300", "create-runtime"];
    let others = others.iter().map(String::as_str);
    let hook = others
        .chain(arguments)
        .fold(HookCommand::new(first.as_ref()), HookCommand::arg);
    Bundle::builder(Rootfs::Glibc).hook(Stage::CreateRuntime, hook.timeout(300))
}
