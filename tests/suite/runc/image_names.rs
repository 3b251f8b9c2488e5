//! Programs that open a library by a path, search a directory for it, or have a loader of their
//! own find the host's, and leftovers of the image do not hide it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, LibraryCall, Loaded};
use harness::probe::Questions;
use harness::recorded_host::RecordedHost;
use harness::rootfs::{Rootfs, make_loader_cache};

use super::container;
use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version, requesting};
use crate::tree::listing;

on_each_cgroup_version!(
    names_are_where_the_images_layout_has_libraries,
    a_directory_that_the_hook_made_is_not_the_images_library_directory,
    a_path_a_search_and_a_loader_without_a_cache_find_the_library,
    leftovers_in_the_library_path_give_way,
    newer_libraries_in_the_library_path_stay,
    a_start_that_cannot_write_goes_on,
    a_committed_image_has_its_own_libraries,
    a_committed_image_serves_another_driver,
    programs_are_linked_and_preloaded_by_names_of_the_image,
    what_stays_is_a_few_links,
);

const SONAME: &str = "libdummy-npu.so.1";
const INJECTED_DIR: &str = "/usr/lib/boathook/lib";
const MULTIARCH: &str = "/usr/lib/x86_64-linux-gnu";

/// The version that the host has.
const HOSTS: &str = "1.2.3";

fn load(path: &str) -> LibraryCall {
    LibraryCall {
        soname: path.to_owned(),
        ..VendorLibrary::dummy_npu().wanted()
    }
}

/// Returns what the library answers that a container's program has loaded.
fn answer(printed: &str) -> String {
    match loader::parse(printed).unwrap().remove(0) {
        Loaded::Found { answer, .. } => answer,
        Loaded::Failed { error, .. } => error,
    }
}

/// An image of each distribution, one with musl, and one without any loader.
fn names_are_where_the_images_layout_has_libraries(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (rootfs, directories, expected) in [
        (
            Rootfs::Busybox,
            &["usr/lib/x86_64-linux-gnu", "usr/lib64"][..],
            MULTIARCH,
        ),
        (Rootfs::Busybox, &["usr/lib64", "usr/lib"], "/usr/lib64"),
        (Rootfs::Busybox, &[], "/usr/lib"),
        (Rootfs::Empty, &[], "/usr/lib"),
    ] {
        let path = format!("{expected}/{SONAME}");
        let questions = Questions::new().path(&path);
        let bundle = container(&host, rootfs, "npu-3")
            .args(crate::lab::asking(&questions))
            .build()
            .unwrap();
        for directory in directories {
            let directory = bundle.rootfs().join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("libc.so.6"), "").unwrap();
        }
        for _ in 0..2 {
            let report = lab.probe(&bundle);
            let link = report.path(&path).unwrap().link_target.clone();
            let place = Path::new(INJECTED_DIR).join(SONAME);
            assert_eq!(link.as_deref(), Some(&*place), "{rootfs:?}: {expected}");
        }
    }
}

pub(super) const CARD_CLASS: &str = "
    version = 1
    resource = 'example.com/card'
    request = { env = 'CARDS' }
    discover = [{ path = '/dev/card{index:number}' }]
    device = { id = 'card-{index}', nodes = ['/dev/card{index}'] }
    [[edits]]
    libraries = ['libchip.so.1']
    files = [
      '/usr/lib/x86_64-linux-gnu/card/xorg/card_drv.so',
      { path = '/usr/lib/x86_64-linux-gnu/gbm/card_gbm.so', beside_image_libraries = true },
    ]
";

pub(super) const CARD_HOST: &str = "
char /dev/card0 240:0
file /usr/lib/x86_64-linux-gnu/libchip.so.1.0
link /usr/lib/x86_64-linux-gnu/libchip.so.1 libchip.so.1.0
lib libchip.so.1 /usr/lib/x86_64-linux-gnu/libchip.so.1
file /usr/lib/x86_64-linux-gnu/card/xorg/card_drv.so
file /usr/lib/x86_64-linux-gnu/gbm/card_gbm.so
";

/// A file of the plan has its path in the directory of another distribution than the image's, so
/// the hook makes this directory. A restarted container has it from the beginning.
fn a_directory_that_the_hook_made_is_not_the_images_library_directory(lab: &Lab) {
    let host = RecordedHost::bare(CARD_HOST).unwrap();
    host.add_class("cards", CARD_CLASS).unwrap();
    let bundle = requesting(&host, Rootfs::Busybox, "CARDS", "all")
        .build()
        .unwrap();
    fs::create_dir_all(bundle.in_rootfs("/usr/lib64")).unwrap();
    fs::write(bundle.in_rootfs("/usr/lib64/libc.so.6"), "").unwrap();
    for start in ["first", "second"] {
        drop(lab.runc.create(&bundle).unwrap());
        let links = listing(&bundle.rootfs().join("usr"))
            .into_iter()
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .filter(|path| ["card_", "libchip"].iter().any(|name| path.contains(name)));
        let expected = [
            "/lib/x86_64-linux-gnu/card/xorg/card_drv.so",
            "/lib64/gbm/card_gbm.so",
            "/lib64/libchip.so.1",
        ];
        assert_eq!(Vec::from_iter(links), expected, "{start} start");
    }
}

fn a_path_a_search_and_a_loader_without_a_cache_find_the_library(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for rootfs in images_with_a_loader() {
        let directory = match rootfs {
            Rootfs::Musl => "/usr/lib",
            _ => MULTIARCH,
        };
        let call = format!("{SONAME}:{}", load("").function);
        let by_path = format!("{} {directory}/{call}", loader::PATH);
        let by_search = format!(
            "{} $(echo /usr/lib*/libdummy*.so* /usr/lib/*-linux-gnu/libdummy*.so* | \
                tr ' ' '\\n' | grep -v '[*]' | head -n 1):{}",
            loader::PATH,
            load("").function
        );
        // As that of a program that brings one: nothing of the image's configuration is read.
        let by_loader = match rootfs {
            Rootfs::Musl => format!(
                "rm -f /etc/ld-musl-* 2>/dev/null; /lib/ld-musl-*.so.1 {} {call}",
                loader::PATH
            ),
            _ => format!(
                "/lib64/ld-linux-x86-64.so.2 --inhibit-cache --library-path {directory} {} {call}",
                loader::PATH
            ),
        };
        for command in [by_path, by_search, by_loader] {
            let asked = || container(&host, rootfs, "npu-3").args(["/bin/sh", "-c", &command]);
            for bundle in [asked(), asked().readonly()] {
                let bundle = bundle.build().unwrap();
                assert_eq!(answer(&lab.run(&bundle)), HOSTS, "{rootfs:?}: {command}");
            }
        }
    }
}

/// Puts an old library into a directory of the image.
type Leftover = (&'static str, fn(&Path));

const LEFTOVERS: [Leftover; 7] = [
    ("an old library with its link", |directory| {
        VendorLibrary::new("dummy-npu", "1.0.0")
            .install(directory)
            .unwrap();
    }),
    ("an old library by its soname", |directory| {
        VendorLibrary::new("dummy-npu", "1.0.0")
            .install(directory)
            .unwrap();
        fs::rename(
            directory.join("libdummy-npu.so.1.0.0"),
            directory.join(SONAME),
        )
        .unwrap();
    }),
    ("an empty file", |directory| {
        fs::write(directory.join(SONAME), "").unwrap();
    }),
    ("a link to an empty file", |directory| {
        fs::write(directory.join("libdummy-npu.so.1.0.0"), "").unwrap();
        symlink("libdummy-npu.so.1.0.0", directory.join(SONAME)).unwrap();
    }),
    ("the empty file of the same version", |directory| {
        fs::write(directory.join("libdummy-npu.so.1.2.3"), "").unwrap();
        symlink("libdummy-npu.so.1.2.3", directory.join(SONAME)).unwrap();
    }),
    ("a link to a file that is gone", |directory| {
        symlink("libdummy-npu.so.1.0.0", directory.join(SONAME)).unwrap();
    }),
    ("a link to another directory", |directory| {
        let other = directory.parent().unwrap().join("other");
        fs::create_dir_all(&other).unwrap();
        VendorLibrary::new("dummy-npu", "1.0.0")
            .install(&other)
            .unwrap();
        symlink(format!("../other/{SONAME}"), directory.join(SONAME)).unwrap();
    }),
];

/// As in images that were built with another version of the driver, or under another runtime.
fn leftovers_in_the_library_path_give_way(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for directory in [MULTIARCH, "/opt/chip/lib"] {
        for (leftover, put) in LEFTOVERS {
            let bundle = container(&host, Rootfs::Glibc, "npu-3")
                .env("LD_LIBRARY_PATH", &format!("/nothing:{directory}:"))
                .args(loader::command(&[load(SONAME)]))
                .build()
                .unwrap();
            fs::create_dir_all(bundle.in_rootfs(directory)).unwrap();
            put(&bundle.in_rootfs(directory));
            make_loader_cache(&bundle.rootfs()).unwrap();
            for start in ["the first", "the second"] {
                let printed = lab.run(&bundle);
                assert_eq!(
                    answer(&printed),
                    HOSTS,
                    "{leftover} in {directory}, {start} start"
                );
            }
        }
    }
    // A file with another name that a link leads to is not covered.
    let command = format!("cat {MULTIARCH}/notes");
    let bundle = container(&host, Rootfs::Glibc, "npu-3")
        .args(["/bin/sh", "-c", &command])
        .build()
        .unwrap();
    fs::write(bundle.in_rootfs(&format!("{MULTIARCH}/notes")), "notes").unwrap();
    symlink("notes", bundle.in_rootfs(&format!("{MULTIARCH}/{SONAME}"))).unwrap();
    assert_eq!(lab.run(&bundle), "notes");
}

fn gpu_host(driver: &str) -> RecordedHost {
    let recording = recording("h200").replace("580.159.03", driver);
    RecordedHost::new("nvidia-gpu", &recording).unwrap()
}

fn recording(name: &str) -> String {
    let testdata = binaries::source_tree().join("device-class/testdata/nvidia-gpu");
    fs::read_to_string(testdata.join(name).join("host.txt")).unwrap()
}

/// An image may name its directory of forward compatibility in `LD_LIBRARY_PATH`.
fn newer_libraries_in_the_library_path_stay(lab: &Lab) {
    const COMPAT: &str = "/usr/local/cuda/compat";
    for (images, is_covered) in [("590.1.2", false), ("570.1.2", true)] {
        let host = gpu_host("580.159.03");
        let path = format!("{COMPAT}/libcuda.so.{images}");
        let questions = Questions::new().path(&path);
        let bundle = requesting(&host, Rootfs::Glibc, "NVIDIA_VISIBLE_DEVICES", "0")
            .env("LD_LIBRARY_PATH", COMPAT)
            .args(crate::lab::asking(&questions))
            .build()
            .unwrap();
        fs::create_dir_all(bundle.in_rootfs(COMPAT)).unwrap();
        fs::write(bundle.in_rootfs(&path), "the image's").unwrap();
        let link = bundle.in_rootfs(&format!("{COMPAT}/libcuda.so.1"));
        symlink(format!("libcuda.so.{images}"), link).unwrap();
        let report = lab.probe(&bundle);
        assert_eq!(report.mount_at(&path).is_some(), is_covered, "{images}");
    }
}

/// The image's directory is a volume, or its names are something else.
fn a_start_that_cannot_write_goes_on(lab: &Lab) {
    let place = format!("{MULTIARCH}/{SONAME}");
    let host = DemoHost::new().unwrap();
    let volume = tempfile::tempdir().unwrap();
    let libraries = Path::new(MULTIARCH);
    let command = loader::command(&[load(SONAME)]);
    let of = || container(&host, Rootfs::Glibc, "npu-3").args(command.clone());
    let read_only = of().readonly().build().unwrap();
    assert_eq!(answer(&lab.run(&read_only)), HOSTS);
    let with_users = of().user_namespace().build().unwrap();
    assert_eq!(answer(&lab.run(&with_users)), HOSTS);
    assert!(with_users.in_rootfs(&place).is_symlink());

    // A path that is too long to be opened.
    let too_long = format!("/{}", "lib/".repeat(1100));
    let bundle = of().env("LD_LIBRARY_PATH", &too_long).build().unwrap();
    assert_eq!(answer(&lab.run(&bundle)), HOSTS);
    let bundle = of().build().unwrap();
    fs::create_dir_all(bundle.in_rootfs(&place)).unwrap();
    assert_eq!(answer(&lab.run(&bundle)), HOSTS);
    assert!(
        host.log().contains(&format!("{place} exists already")),
        "{}",
        host.log()
    );

    let bundle = of().bind(volume.path(), MULTIARCH).build().unwrap();
    let own = bundle.in_rootfs(MULTIARCH);
    for entry in fs::read_dir(&own).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), volume.path().join(entry.file_name())).unwrap();
    }
    let before = listing(volume.path());
    assert_eq!(answer(&lab.run(&bundle)), HOSTS);
    assert_eq!(listing(volume.path()), before, "{}", libraries.display());
    assert!(
        host.log().contains("do not lead to the host's libraries"),
        "{}",
        host.log()
    );
}

/// A layer of the image with its own library, which its link or another directory names, is used
/// again where no device is requested.
fn a_committed_image_has_its_own_libraries(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for directory in [MULTIARCH, "/opt/chip/lib"] {
        for (leftover, put) in LEFTOVERS {
            let command = loader::command(&[load(SONAME)]);
            let bundle = |with_device: bool, layer: Option<&Bundle>| {
                let builder = if with_device {
                    container(&host, Rootfs::Glibc, "npu-3")
                } else {
                    Bundle::builder(Rootfs::Glibc)
                };
                let path = format!("/nothing:{directory}:");
                let builder = builder.env("LD_LIBRARY_PATH", &path).args(command.clone());
                let bundle = builder.build().unwrap();
                match layer {
                    Some(layer) => commit(layer, &bundle),
                    None => {
                        fs::create_dir_all(bundle.in_rootfs(directory)).unwrap();
                        put(&bundle.in_rootfs(directory));
                        make_loader_cache(&bundle.rootfs()).unwrap();
                    }
                }
                bundle
            };
            let before = answer(&lab.run(&bundle(false, None)));
            let with_device = bundle(true, None);
            assert_eq!(answer(&lab.run(&with_device)), HOSTS, "{leftover}");
            let after = answer(&lab.run(&bundle(false, Some(&with_device))));
            assert_eq!(after, before, "{leftover} in {directory}");
        }
    }
}

/// Replaces the root file system of a container by that of another one.
fn commit(layer: &Bundle, bundle: &Bundle) {
    fs::remove_dir_all(bundle.rootfs()).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-a").args([layer.rootfs(), bundle.rootfs()]);
    Captured::run(&mut copy).unwrap().success().unwrap();
}

/// The image was committed from a container with another version of the driver.
fn a_committed_image_serves_another_driver(lab: &Lab) {
    let call = RecordedHost::wanted("libcuda.so.1");
    let by_path = LibraryCall {
        soname: format!("{MULTIARCH}/libcuda.so.1"),
        ..call.clone()
    };
    let bundle = |host: &RecordedHost| {
        requesting(host, Rootfs::Glibc, "NVIDIA_VISIBLE_DEVICES", "0")
            .args(loader::command(&[call.clone(), by_path.clone()]))
            .build()
            .unwrap()
    };
    let (older, newer) = (gpu_host("570.1.2"), gpu_host("580.159.03"));
    let first = bundle(&older);
    lab.run(&first);
    let second = bundle(&newer);
    commit(&first, &second);
    for loaded in loader::parse(&lab.run(&second)).unwrap() {
        let Loaded::Found { answer, .. } = loaded else {
            panic!("{loaded:?}");
        };
        assert_eq!(answer, "libcuda.so.1");
    }
    let stale = listing(&second.rootfs()).into_iter();
    let stale: Vec<_> = stale.filter(|line| line.contains(".so.570.1.2")).collect();
    assert_eq!(stale, [""; 0]);
}

/// `ld -lcuda` as gcc calls it, by the names without a version; and `LD_PRELOAD` by a path.
fn programs_are_linked_and_preloaded_by_names_of_the_image(lab: &Lab) {
    let linker = "/linker/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 \
        --library-path /linker/usr/lib/x86_64-linux-gnu:/linker/lib/x86_64-linux-gnu \
        /linker/usr/bin/ld -shared -o /linked";
    let debian = RecordedHost::new("nvidia-gpu", &recording("debian-550")).unwrap();
    // The host of the other recording has no package for decoding.
    for (host, libraries) in [
        (
            &gpu_host("580.159.03"),
            "-lcuda -lnvidia-encode -lnvidia-ml",
        ),
        (&debian, "-lcuda -lnvcuvid -lnvidia-encode -lnvidia-ml"),
    ] {
        let command = format!("{linker} -L {MULTIARCH} {libraries} && echo linked");
        let built = requesting(host, Rootfs::Glibc, "NVIDIA_VISIBLE_DEVICES", "0")
            .env("NVIDIA_DRIVER_CAPABILITIES", "all")
            .bind(Path::new("/"), "/linker")
            .args(["/bin/sh", "-c", &command])
            .build()
            .unwrap();
        assert_eq!(lab.run(&built).trim(), "linked", "{libraries}");
    }

    let host = DemoHost::new().unwrap();
    for rootfs in images_with_a_loader() {
        let directory = match rootfs {
            Rootfs::Musl => "/usr/lib",
            _ => MULTIARCH,
        };
        // The loader prints an error if it cannot preload a library.
        let call = format!("{SONAME}:{}", load("").function);
        let preloaded = format!(
            "LD_PRELOAD={directory}/{SONAME} {} {call} 2>&1",
            loader::PATH
        );
        let bundle = container(&host, rootfs, "npu-3")
            .args(["/bin/sh", "-c", &preloaded])
            .build()
            .unwrap();
        let printed = lab.run(&bundle);
        assert!(!printed.contains("LD_PRELOAD"), "{rootfs:?}: {printed}");
        assert_eq!(answer(&printed), HOSTS, "{rootfs:?}");
    }
}

/// With all capabilities of a class with dozens of libraries: no file that is named like a
/// library, and links only for those that programs open by a path.
fn what_stays_is_a_few_links(lab: &Lab) {
    let host = gpu_host("580.159.03");
    let builder = requesting(&host, Rootfs::Glibc, "NVIDIA_VISIBLE_DEVICES", "0")
        .env("NVIDIA_DRIVER_CAPABILITIES", "all");
    let with = builder.build().unwrap();
    let without = Bundle::builder(Rootfs::Glibc).build().unwrap();
    drop(lab.runc.create(&with).unwrap());
    drop(lab.runc.create(&without).unwrap());
    let before = listing(&without.rootfs());
    let after = listing(&with.rootfs());
    let new = after.iter().filter(|line| !before.contains(line));
    let paths = new.map(|line| line.split(' ').next().unwrap_or_default());
    let prefix = format!("{MULTIARCH}/lib");
    let libraries: Vec<&str> = paths
        .filter_map(|path| path.strip_prefix(&prefix))
        .collect();
    // The host of this recording has no package for decoding.
    let expected = "cuda.so cuda.so.1 nvidia-encode.so nvidia-encode.so.1 nvidia-ml.so \
        nvidia-ml.so.1 nvidia-ptxjitcompiler.so.1";
    assert_eq!(libraries.join(" "), expected);
    for name in libraries {
        assert!(
            with.in_rootfs(&format!("{prefix}{name}")).is_symlink(),
            "{name}"
        );
    }
}
