//! An image's own libraries of forward compatibility: they are used instead of the
//! host's if they are newer, and the driver and the GPU allow it.

use std::fs;
use std::os::unix::fs::symlink;

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder};
use harness::compile::{self, Libc};
use harness::loader::{self, Loaded};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(
    newer_libraries_of_the_image_come_first,
    they_come_first_after_ldconfig
);

const HOSTS: &str = "/usr/lib/boathook/lib/libcuda.so.1";
const IMAGES: &str = "/usr/local/cuda/compat/libcuda.so.1";

/// The recording is of a data-center GPU on this driver.
const DRIVER: &str = "580.159.03";
const MODEL: &str = "NVIDIA H200";

fn host(driver: &str, model: &str) -> RecordedHost {
    let testdata = binaries::source_tree().join("device-class/testdata");
    let recording = fs::read_to_string(testdata.join("nvidia-gpu/h200/host.txt")).unwrap();
    let recording = recording.replace(DRIVER, driver).replace(MODEL, model);
    RecordedHost::new("nvidia-gpu", &recording).unwrap()
}

/// A container that loads CUDA's library.
fn container(host: &RecordedHost, versions: &[&str]) -> Bundle {
    image(host, versions, |builder| builder.args(load_command()))
}

fn load_command() -> Vec<String> {
    loader::command(&[RecordedHost::wanted("libcuda.so.1")])
}

/// A container of an image with these versions of CUDA's library.
fn image(
    host: &RecordedHost,
    versions: &[&str],
    command: fn(BundleBuilder) -> BundleBuilder,
) -> Bundle {
    let builder = requesting(host, Rootfs::Glibc, "NVIDIA_VISIBLE_DEVICES", "0");
    let bundle = command(builder).build().unwrap();
    // As in NVIDIA's images: two links lead to the directory.
    let compat = bundle.in_rootfs("/usr/local/cuda-13.9/compat");
    fs::create_dir_all(&compat).unwrap();
    fs::create_dir_all(bundle.in_rootfs("/etc/alternatives")).unwrap();
    for (link, target) in [
        ("/usr/local/cuda", "/etc/alternatives/cuda"),
        ("/etc/alternatives/cuda", "/usr/local/cuda-13.9"),
    ] {
        symlink(target, bundle.in_rootfs(link)).unwrap();
    }
    let arguments = [
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,-soname,libcuda.so.1",
        "-DVERSION_FUNCTION=recorded_library_name",
        "-DVERSION=\"the image's\"",
    ];
    let built = compile::program("vendor-library.c", Libc::Glibc, &arguments).unwrap();
    for version in versions {
        let file = format!("libcuda.so.{version}");
        fs::copy(&built, compat.join(&file)).unwrap();
        let _ = symlink(&file, compat.join("libcuda.so.1"));
    }
    bundle
}

fn path_loaded(printed: &str) -> String {
    match &loader::parse(printed).unwrap()[..] {
        [Loaded::Found { path, .. }] => path.display().to_string(),
        other => panic!("{other:?}"),
    }
}

fn newer_libraries_of_the_image_come_first(lab: &Lab) {
    for (driver, model, versions, expected) in [
        ("550.90.07", MODEL, &["580.65.06"][..], IMAGES),
        ("535.261.03", "Tesla T4", &["580.65.06"], IMAGES),
        // Not newer, or only within the branch.
        ("590.44.01", MODEL, &["580.65.06"], HOSTS),
        (DRIVER, MODEL, &["580.65.06"], HOSTS),
        // The branch does not allow it, nor does the GPU.
        ("545.23.08", MODEL, &["580.65.06"], HOSTS),
        (
            "550.90.07",
            "NVIDIA GeForce RTX 4090",
            &["580.65.06"],
            HOSTS,
        ),
        // It cannot be determined which is used.
        ("550.90.07", MODEL, &["570.1.2", "580.65.06"], HOSTS),
        ("550.90.07", MODEL, &[], HOSTS),
    ] {
        let host = host(driver, model);
        let printed = lab.run(&container(&host, versions));
        let loaded = path_loaded(&printed);
        assert_eq!(loaded, expected, "{versions:?} on {driver}, {model}");
    }
    // The directory is a link that leads round in a circle, or out of the image.
    for target in ["compat", "../../../../../../../../../../usr/lib"] {
        let host = host("550.90.07", MODEL);
        let bundle = container(&host, &[]);
        let compat = bundle.in_rootfs("/usr/local/cuda-13.9/compat");
        fs::remove_dir(&compat).unwrap();
        symlink(target, &compat).unwrap();
        assert_eq!(path_loaded(&lab.run(&bundle)), HOSTS, "{target}");
    }
}

fn they_come_first_after_ldconfig(lab: &Lab) {
    let host = host("550.90.07", MODEL);
    let bundle = image(&host, &["580.65.06"], |builder| builder);
    let printed = lab.exec_after_ldconfig(&bundle, &load_command());
    assert_eq!(path_loaded(&printed), IMAGES);
}
