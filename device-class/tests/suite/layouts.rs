//! Where hosts keep a driver: each distribution in a tree of its own, written after the
//! document that its first lines name.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, FoundClass, PathLookup};
use device_class::host::RecordedHost;
use device_class::name::CapabilityName;

use crate::{rows, shipped};

/// What the kernel's part of the driver has on each of them.
const DRIVER: &str = "\
file /proc/driver/nvidia/version
| NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed May  6 2026
file /proc/driver/nvidia/gpus/0000:17:00.0/information
| Model: \t NVIDIA H200
| GPU UUID: \t GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10
| Device Minor: \t 0
file /sys/bus/pci/devices/0000:17:00.0/config
| (the configuration space)
";

const NODES: &str = "\
char /dev/nvidia0 195:0
char /dev/nvidiactl 195:255
char /dev/nvidia-uvm 511:0
char /dev/nvidia-uvm-tools 511:1
";

const IN_CONTAINER: &str =
    "[class.nvidia-gpu]\ndriver_root = '/run/nvidia/driver'\ndev_root = '/run/nvidia/driver'\n";

fn found(layout: &str, nodes: &str, config: &str) -> FoundClass {
    let tree = shipped::root().join(format!("testdata/nvidia-gpu/layouts/{layout}.txt"));
    found_in(&std::fs::read_to_string(tree).unwrap(), nodes, config)
}

fn found_in(tree: &str, nodes: &str, config: &str) -> FoundClass {
    let config: Config = toml::from_str(config).unwrap();
    let class = config.with_settings(shipped::class("nvidia-gpu"), Path::new("nvidia-gpu.toml"));
    let class = class.unwrap();
    let host = RecordedHost::parse(&format!("{tree}{DRIVER}{nodes}")).unwrap();
    let capabilities = ["utility", "compute", "graphics", "compat32"];
    let capabilities = capabilities.map(|name| CapabilityName::try_from(name.to_owned()).unwrap());
    let capabilities = BTreeSet::from(capabilities);
    discover::look_up_class(&class, (&capabilities).into(), &host).unwrap()
}

/// Where the files of these names are found.
fn sources(found: &FoundClass, named: &str) -> Vec<String> {
    let libraries = found.edits.libraries.iter();
    let libraries = libraries.filter_map(|library| match &library.file {
        PathLookup::Found(path) => Some(path),
        _ => None,
    });
    let files = found.edits.files.iter();
    let files = files.filter_map(|file| match &file.file {
        PathLookup::Found(source) => Some(&source.path),
        _ => None,
    });
    let paths = libraries
        .chain(files)
        .map(|path| path.display().to_string());
    let is_named = |path: &String| path.rsplit('/').next().unwrap().starts_with(named);
    paths.filter(is_named).collect()
}

/// A layout, and the directories of its libraries and programs.
const LAYOUTS: &str = "
nixos | /nix/store/a-nvidia-x11-580.159.03/lib | /nix/store/a-nvidia-x11-580.159.03-bin/bin
talos | /usr/local/glibc/usr/lib | /usr/local/bin
cos-gpu-installer | /var/lib/nvidia/lib64 | /var/lib/nvidia/bin
opt | /opt/nvidia/lib64 | /opt/nvidia/bin
bottlerocket | /x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla | /usr/libexec/nvidia/tesla/bin
bright | /cm/local/apps/cuda-driver/libs/580.159.03/lib64 | /cm/local/apps/cuda-driver/libs/580.159.03/bin
cos | /home/kubernetes/bin/nvidia/lib64 | /home/kubernetes/bin/nvidia/bin
flatcar | /opt/nvidia/580.159.03/4230.2.1/lib64 | /opt/nvidia/580.159.03/4230.2.1/bin
fedora | /usr/lib64 | /usr/bin
qnap | /opt/NVIDIA_GPU_DRV/usr/nvidia | /opt/NVIDIA_GPU_DRV/usr/bin
driver-directory | /usr/local/nvidia/lib64 | /usr/local/nvidia/bin
driver-container | /run/nvidia/driver/usr/lib/x86_64-linux-gnu | /run/nvidia/driver/usr/bin
";

#[test]
fn each_hosts_driver_is_found() {
    for [layout, libraries, programs] in rows(LAYOUTS) {
        let layout = layout.as_str();
        let (nodes, config, dev) = match layout {
            "driver-container" => ("", IN_CONTAINER, "/run/nvidia/driver/dev"),
            _ => (NODES, "", "/dev"),
        };
        let found = found(layout, nodes, config);
        let mut expected = vec![format!("{libraries}/libcuda.so.580.159.03")];
        expected.extend((layout == "fedora").then(|| "/usr/lib/libcuda.so.580.159.03".into()));
        expected.push(format!("{libraries}/libnvidia-ml.so.580.159.03"));
        expected.push(format!("{programs}/nvidia-smi"));
        let names = ["libcuda.so", "libnvidia-ml.so", "nvidia-smi"];
        let found_files = names.map(|name| sources(&found, name)).concat();
        assert_eq!(found_files, expected, "{layout}");
        if ["talos", "cos"].contains(&layout) {
            let other = format!("{programs}/nvidia-cuda-mps-control");
            assert_eq!(sources(&found, "nvidia-cuda"), [other]);
        }
        let smi = found
            .edits
            .files
            .iter()
            .find(|file| file.is_program)
            .unwrap();
        assert_eq!(
            smi.container_path,
            Path::new("/usr/bin/nvidia-smi"),
            "{layout}"
        );

        let device = &found.inventory.devices[0];
        assert!(device.health.is_healthy(), "{layout}: {}", device.health);
        for node in device.nodes.iter().chain(&found.edits.nodes) {
            assert!(
                node.host_path.starts_with(dev),
                "{layout}: {}",
                node.host_path.display()
            );
            assert!(node.container_path.starts_with("/dev"), "{layout}");
            assert!(matches!(node.number, PathLookup::Found(_)), "{layout}");
        }
    }
}

/// The operator's driver container is found by itself, and not the leftovers of an older driver of
/// the host. A host that has a driver of its own keeps it, and a setting goes before both.
#[test]
fn a_driver_container_is_found_by_itself() {
    let tree = shipped::root().join("testdata/nvidia-gpu/layouts/driver-container.txt");
    let tree = std::fs::read_to_string(tree).unwrap();
    let host = "file /usr/bin/nvidia-smi\n\
         file /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03\n\
         lib libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03\n";
    let marker = "file /run/nvidia/driver/usr/bin/nvidia-smi\n";
    let configured = "[class.nvidia-gpu]\ndriver_root = '/usr'\n";
    let container = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03";
    let own = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03";
    for (tree, config, expected) in [
        (tree.clone(), "", &[container][..]),
        (tree.replace(marker, ""), "", &[]),
        (format!("{tree}{host}"), "", &[own]),
        (tree.clone(), configured, &[]),
        (tree.replace("/run/nvidia/driver", "/run/other"), "", &[]),
    ] {
        let found = found_in(&tree, NODES, config);
        assert_eq!(sources(&found, "libcuda.so"), expected, "{config}");
    }
}

/// A class, a program of it that reports facts, and where else the program is found.
const PROGRAMS: &str = "
nvidia-gpu | /usr/bin/nvidia-smi | /opt/NVIDIA_GPU_DRV/usr/bin
hygon-dcu | /opt/hyhal/bin/hy-smi | /usr/local/hyhal/bin
metax-gpu | /opt/mxdriver/bin/mx-smi | /opt/maca/bin
gaudi | /usr/bin/hl-smi | /opt/habanalabs/bin
ascend-npu | /usr/local/sbin/npu-smi | /usr/local/bin
kunlunxin-xpu | /usr/local/bin/xpu-smi | /usr/local/xpu/bin
";

/// A program of the driver is found at the path that the class names, in a directory that the class
/// knows, or in a directory of config.toml. The directory of config.toml is searched before those
/// that the class knows.
#[test]
fn programs_of_each_vendor_are_found_in_other_places() {
    for [name, path, other] in rows(PROGRAMS) {
        let file = path.rsplit('/').next().unwrap();
        let (other, own) = (format!("{other}/{file}"), format!("/spack/bin/{file}"));
        let config = format!("[class.{name}]\nprogram_directories = ['/spack/bin']\n");
        for (files, config, expected) in [
            (vec![&path, &other, &own], "", &path),
            (vec![&other, &own], "", &other),
            (vec![&other, &own], config.as_str(), &own),
            (vec![&own], "", &path),
        ] {
            let config: Config = toml::from_str(config).unwrap();
            let class = config.with_settings(shipped::class(&name), Path::new("x.toml"));
            let tree: String = files.iter().map(|file| format!("file {file}\n")).collect();
            let host = RecordedHost::parse(&tree).unwrap();
            let found = discover::find_host_program(&class.unwrap(), Path::new(&path), &host);
            assert_eq!(found.path, Path::new(expected), "{name}: {files:?}");
        }
    }
}

/// Any other place is named in config.toml, and goes before the class's.
#[test]
fn libraries_are_found_in_the_configured_directories() {
    let tree = "file /opt/driver/lib/libcuda.so.580.159.03\n\
         link /opt/driver/lib/libcuda.so.1 libcuda.so.580.159.03\n\
         file /home/kubernetes/bin/nvidia/lib64/libcuda.so.535.1\n\
         link /home/kubernetes/bin/nvidia/lib64/libcuda.so.1 libcuda.so.535.1\n";
    let cuda = |config: &str| sources(&found_in(tree, NODES, config), "libcuda.so");
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/opt/driver/lib']";
    assert_eq!(cuda(config), ["/opt/driver/lib/libcuda.so.580.159.03"]);
    // What is there is not of the driver's version.
    assert_eq!(cuda(""), [""; 0]);
}

/// The cache has the library of a CUDA toolkit, and not that of the driver.
#[test]
fn a_library_of_another_version_in_the_cache_does_not_hide_that_of_the_driver() {
    let tree = "lib libcuda.so.1 /usr/local/cuda/compat/libcuda.so.1\n\
         file /usr/local/cuda/compat/libcuda.so.550.54.15\n\
         link /usr/local/cuda/compat/libcuda.so.1 libcuda.so.550.54.15\n\
         file /opt/driver/lib/libcuda.so.580.159.03\n\
         link /opt/driver/lib/libcuda.so.1 libcuda.so.580.159.03\n";
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/opt/driver/lib']";
    let cuda = sources(&found_in(tree, NODES, config), "libcuda.so");
    assert_eq!(cuda, ["/opt/driver/lib/libcuda.so.580.159.03"]);
}

/// A prefix that no preset knows, such as that of a package manager for clusters, is one
/// line for each kind.
#[test]
fn programs_are_found_in_the_configured_directories() {
    let tree = "file /spack/nvidia/lib/libcuda.so.1\n\
         file /spack/nvidia/lib/libcuda.so.580.159.03\n\
         link /spack/nvidia/lib/libcuda.so.1 libcuda.so.580.159.03\n\
         file /spack/nvidia/bin/nvidia-smi\n\
         file /opt/nvidia/bin/nvidia-smi\n";
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/spack/nvidia/lib']\n\
         program_directories = ['/spack/nvidia/bin']";
    let host = found_in(tree, NODES, config);
    assert_eq!(
        sources(&host, "nvidia-smi"),
        ["/spack/nvidia/bin/nvidia-smi"]
    );
    assert_eq!(
        sources(&host, "libcuda.so"),
        ["/spack/nvidia/lib/libcuda.so.580.159.03"]
    );
}

/// It may be the program: another one is not taken in its place without a word.
#[test]
fn a_program_that_cannot_be_looked_up_is_a_fault() {
    let tree = "link /usr/bin/nvidia-smi nvidia-smi\n\
         file /spack/nvidia/bin/nvidia-smi\n";
    let config = "[class.nvidia-gpu]\nprogram_directories = ['/spack/nvidia/bin']";
    let host = found_in(tree, NODES, config);
    let faults: Vec<_> = host
        .edits
        .unusable_reasons()
        .map(|fault| fault.to_string())
        .collect();
    let about = |fault: &&String| fault.contains("cannot look up /usr/bin/nvidia-smi");
    assert_eq!(faults.iter().filter(about).count(), 1, "{faults:?}");
}

/// The operator's driver container, by one key: the hook makes the nodes that /dev lacks.
#[test]
fn a_driver_container_needs_only_its_root() {
    let config = "[class.nvidia-gpu]\ndriver_root = '/run/nvidia/driver'\n";
    let majors =
        "file /proc/devices\n| Character devices:\n| 195 nvidia-frontend\n| 511 nvidia-uvm\n";
    let found = found("driver-container", majors, config);
    let root = "/run/nvidia/driver/usr";
    let cuda = format!("{root}/lib/x86_64-linux-gnu/libcuda.so.580.159.03");
    assert_eq!(sources(&found, "libcuda.so"), [cuda]);
    assert_eq!(
        sources(&found, "nvidia-smi"),
        [format!("{root}/bin/nvidia-smi")]
    );
    let device = &found.inventory.devices[0];
    assert!(device.health.is_healthy(), "{}", device.health);
    for node in device.nodes.iter().chain(&found.edits.nodes) {
        assert!(matches!(node.number, PathLookup::Found(_)), "{node:?}");
    }
}

/// A driver's root may have lib64 and bin at its top and no cache of a loader.
#[test]
fn a_driver_root_needs_no_usr() {
    for directory in ["lib64", "lib", "usr/lib64"] {
        let root = format!("/srv/driver/{directory}");
        let tree = format!(
            "file {root}/libcuda.so.580.159.03\n\
             link {root}/libcuda.so.1 libcuda.so.580.159.03\n\
             file {root}/libnvidia-ml.so.580.159.03\n\
             link {root}/libnvidia-ml.so.1 libnvidia-ml.so.580.159.03\n\
             file /srv/driver/bin/nvidia-smi\n"
        );
        let config = "[class.nvidia-gpu]\ndriver_root = '/srv/driver'";
        let host = found_in(&tree, NODES, config);
        let cuda = format!("{root}/libcuda.so.580.159.03");
        assert_eq!(sources(&host, "libcuda.so"), [cuda]);
        assert_eq!(sources(&host, "nvidia-smi"), ["/srv/driver/bin/nvidia-smi"]);
        assert_eq!(host.edits.unusable_reasons().next(), None);
    }
}

/// Debian has nvidia-smi in a package of its own, and Ubuntu's headless drivers lack it.
#[test]
fn no_class_requires_a_program() {
    let mut with_programs = 0;
    for directory in std::fs::read_dir(shipped::root().join("testdata")).unwrap() {
        let directory = directory.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let hosts = std::fs::read_dir(&directory).unwrap();
        let hosts = hosts.map(|entry| entry.unwrap().path());
        let hosts = hosts.chain([directory.clone()]);
        for host in hosts.map(|host| host.join("host.txt")) {
            let Ok(text) = std::fs::read_to_string(&host) else {
                continue;
            };
            let class = shipped::class(&name);
            let edits = class.spec.edits.iter();
            let has_programs = edits.clone().any(|edits| !edits.binaries.is_empty());
            with_programs += usize::from(has_programs);
            let capabilities = class.spec.capabilities();
            let all = |text: &str| {
                let host = RecordedHost::parse(text).unwrap();
                let found = discover::look_up_class(&class, (&capabilities).into(), &host);
                found.unwrap().edits
            };
            let programs = all(&text).files.into_iter().filter(|file| file.is_program);
            let programs: Vec<String> = programs
                .map(|file| file.path.display().to_string())
                .collect();
            let lines = text.lines().filter(|line| {
                let mut words = line.split(' ');
                let is_program = |path: &str| programs.iter().any(|program| program == path);
                words.next() == Some("|") || !words.next().is_some_and(is_program)
            });
            let without: Vec<&str> = lines.collect();
            let found = all(&without.join("\n"));
            let mut programs = found.files.iter().filter(|file| file.is_program);
            assert!(
                programs.all(|file| file.file.unusable_reason().is_none()),
                "{}",
                host.display()
            );
        }
    }
    assert!(with_programs > 9, "{with_programs}");
}

/// After an update of the driver the libraries are newer than the module that is loaded.
#[test]
fn libraries_of_another_version_are_named_with_both_versions() {
    let tree = "file /opt/nvidia/lib64/libcuda.so.580.200.01\n\
         link /opt/nvidia/lib64/libcuda.so.1 libcuda.so.580.200.01\n";
    let host = found_in(tree, NODES, "");
    let reason = host
        .edits
        .unusable_reasons()
        .find(|reason| reason.starts_with("libcuda"));
    assert_eq!(
        reason.unwrap(),
        "libcuda.so.1 is on the host as /opt/nvidia/lib64/libcuda.so.580.200.01, which is not of \
         version 580.159.03, that of the driver that is loaded; after an update of the driver \
         reboot the host, otherwise install the libraries of version 580.159.03"
    );
}

/// A manifest, the library that it names, and the library's file. Debian names no path, Fedora's
/// packages (negativo17/nvidia-driver#195) and NixOS's do, and a container of another
/// distribution has nothing there.
const MANIFESTS: &str = "
/usr/share/vulkan/icd.d/nvidia_icd.json | libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.580.159.03 | -
/usr/share/vulkan/icd.d/nvidia_icd.json | /usr/lib64/libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.580.159.03 | /usr/lib64/libGLX_nvidia.so.0
/run/opengl-driver/share/vulkan/icd.d/nvidia_icd.x86_64.json | /nix/store/a/lib/libGLX_nvidia.so.0 | /nix/store/a/lib/libGLX_nvidia.so.580.159.03 | /nix/store/a/lib/libGLX_nvidia.so.0
/run/opengl-driver/share/glvnd/egl_vendor.d/10_nvidia.json | /nix/store/a/lib/libEGL_nvidia.so.0 | /nix/store/a/lib/libEGL_nvidia.so.580.159.03 | /nix/store/a/lib/libEGL_nvidia.so.0
/run/opengl-driver/share/egl/egl_external_platform.d/15_nvidia_gbm.json | /nix/store/a/lib/libnvidia-egl-gbm.so.1 | /nix/store/a/lib/libnvidia-egl-gbm.so.1.1.2 | /nix/store/a/lib/libnvidia-egl-gbm.so.1
/run/opengl-driver/etc/OpenCL/vendors/nvidia.icd | /nix/store/a/lib/libnvidia-opencl.so.1 | /nix/store/a/lib/libnvidia-opencl.so.580.159.03 | /nix/store/a/lib/libnvidia-opencl.so.1
# It names a library that the host lacks, and a directory.
/usr/share/vulkan/icd.d/nvidia_icd.json | /usr/lib64/libGLX_other.so.0 | /usr/lib64/libGLX_nvidia.so.580.159.03 | -
/usr/share/vulkan/icd.d/nvidia_icd.json | /usr/lib64/vdpau.so | /usr/lib64/vdpau.so/a | -
";

#[test]
fn a_library_is_also_at_the_path_that_a_manifest_names() {
    for [manifest, named, file, expected] in rows(MANIFESTS) {
        let link = Path::new(&file).parent().unwrap();
        let soname = named.rsplit('/').next().unwrap();
        let mut tree =
            format!("file {manifest}\n| {{\"library_path\": \"{named}\"}}\nfile {file}\n");
        if file.contains(soname.trim_end_matches(char::is_numeric)) {
            tree += &format!("link {}/{soname} {file}\n", link.display());
        }
        let host = found_in(&tree, NODES, "");
        let libraries = host
            .edits
            .files
            .iter()
            .filter_map(|found| match &found.file {
                PathLookup::Found(source) if source.path == Path::new(&file) => {
                    Some(found.container_path.display().to_string())
                }
                _ => None,
            });
        let wanted: Vec<String> = Some(expected)
            .filter(|path| path != "-")
            .into_iter()
            .collect();
        assert_eq!(libraries.collect::<Vec<_>>(), wanted, "{manifest}: {named}");
        let is_given = sources(&host, manifest.rsplit('/').next().unwrap());
        assert_eq!(is_given, [manifest]);
    }
}

/// Files on the host and what the names in the loader's cache lead to, and the library that a
/// container gets, or the warning.
const VERSIONS: &str = "
libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.580.159.03 | /usr/lib64/libGLX_nvidia.so.580.159.03
# negativo17's packages for Fedora (negativo17/nvidia-driver#195).
libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.0
libcuda.so.1 | /usr/lib64/libcuda.so.1 | /usr/lib64/libcuda.so.1
# A file with the driver's version goes before one without, and one of another version is named.
libGLX_nvidia.so.0 | /opt/lib/libGLX_nvidia.so.0 /usr/lib64/libGLX_nvidia.so.580.159.03 | /usr/lib64/libGLX_nvidia.so.580.159.03
libGLX_nvidia.so.0 | /usr/lib64/libGLX_nvidia.so.535.1 | libGLX_nvidia.so.0 is on the host as
    /usr/lib64/libGLX_nvidia.so.535.1, which is not of version 580.159.03, that of the driver that is
    loaded; after an update of the driver reboot the host, otherwise install the libraries of version
    580.159.03
# A Tegra's library, whose version has another form.
libnvidia-opencl.so.1 | /usr/lib64/libnvidia-opencl.so.1.1 | libnvidia-opencl.so.1 is on the host as
    /usr/lib64/libnvidia-opencl.so.1.1, which is not of version 580.159.03, that of the driver that is
    loaded; install the libraries of version 580.159.03
";

#[test]
fn a_library_on_the_host_is_given_or_named() {
    for [soname, files, expected] in rows(VERSIONS) {
        let lines = files
            .split(' ')
            .map(|file| format!("file {file}\nlib {soname} {file}\n"));
        let host = found_in(&lines.collect::<String>(), NODES, "");
        let mut libraries = host.edits.libraries.iter();
        let library = libraries.find(|library| library.soname == soname).unwrap();
        let result = match (&library.file, &library.omission_reason) {
            (PathLookup::Found(path), None) => path.display().to_string(),
            (PathLookup::OptionalAbsent, Some(reason)) => reason.clone(),
            other => panic!("{soname}: {other:?}"),
        };
        assert_eq!(result, expected, "{files}");
    }
}

/// A class names the directories of a dozen distributions: the advice comes first, and the
/// administrator's own directories after it.
#[test]
fn the_message_about_an_absent_library_begins_with_the_advice() {
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/opt/mistyped']";
    let host = found_in("dir /opt/nvidia/lib64\n", NODES, config);
    let reason = host
        .edits
        .unusable_reasons()
        .find(|reason| reason.starts_with("libcuda"));
    let reason = reason.unwrap();
    let (advice, directories) = reason.split_once(" (not in ").unwrap();
    assert!(advice.ends_with("or name their directory in `library_directories`"));
    assert!(directories.starts_with("/opt/nvidia/lib64, /opt/mistyped (does not exist), "));
    assert!(
        directories.ends_with(" other directories that do not exist)"),
        "{reason}"
    );
    assert!(reason.len() < 400, "{reason}");
}
