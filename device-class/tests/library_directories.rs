//! Hosts that keep a driver's libraries elsewhere, without a cache of the loader.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, FoundEdits, Presence};
use device_class::host::RecordedHost;
use device_class::name::CapabilityName;

const DRIVER: &str = "\
    file /proc/driver/nvidia/version
| NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed May  6 2026
";

fn found(host: &str, config: &str) -> FoundEdits {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("classes/nvidia-gpu.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let name = "nvidia-gpu".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, &file, &text).unwrap();
    let config: Config = toml::from_str(config).unwrap();
    let class = config.adapted(class, &file).unwrap();
    let host = RecordedHost::parse(&format!("{DRIVER}{host}")).unwrap();
    let capabilities = ["utility", "compute"];
    let capabilities = capabilities.map(|name| CapabilityName::try_from(name.to_owned()).unwrap());
    let capabilities = BTreeSet::from(capabilities);
    let found = discover::look_up(&class, (&capabilities).into(), &host).unwrap();
    found.edits
}

fn sources(edits: &FoundEdits) -> Vec<PathBuf> {
    let libraries = edits.libraries.iter();
    let libraries = libraries.filter_map(|library| match &library.file {
        Presence::Found(path) => Some(path.clone()),
        _ => None,
    });
    let files = edits.files.iter();
    let files = files.filter_map(|file| match &file.file {
        Presence::Found(source) => Some(source.path.clone()),
        _ => None,
    });
    libraries.chain(files).collect()
}

/// NixOS: links into the store (nixpkgs, hardware.graphics).
#[test]
fn libraries_are_found_where_nixos_has_them() {
    let edits = found(
        "file /nix/store/x/lib/libcuda.so.580.159.03
         link /run/opengl-driver/lib/libcuda.so.1 /nix/store/x/lib/libcuda.so.580.159.03
         file /nix/store/x/lib/libnvidia-ml.so.580.159.03
         link /run/opengl-driver/lib/libnvidia-ml.so.1 /nix/store/x/lib/libnvidia-ml.so.580.159.03
         file /nix/store/x/lib/libnvidia-new.so.580.159.03
         link /run/opengl-driver/lib/libnvidia-new.so.1 /nix/store/x/lib/libnvidia-new.so.580.159.03
         file /nix/store/y/bin/nvidia-smi
         link /run/current-system/sw/bin /nix/store/y/bin
         ",
        "",
    );
    assert_eq!(
        sources(&edits),
        [
            "/nix/store/x/lib/libnvidia-ml.so.580.159.03",
            "/nix/store/x/lib/libcuda.so.580.159.03",
            "/nix/store/x/lib/libnvidia-new.so.580.159.03",
            "/nix/store/y/bin/nvidia-smi",
        ]
        .map(PathBuf::from)
    );
    let smi = edits.files.iter().find(|file| file.binary).unwrap();
    assert_eq!(smi.container, Path::new("/usr/bin/nvidia-smi"));
}

/// Any other place is named in config.toml, and goes before the class's.
#[test]
fn libraries_are_found_in_the_configured_directories() {
    let host = "file /opt/driver/lib/libcuda.so.1
         file /opt/driver/lib/libcuda.so.580.159.03
         link /opt/driver/lib/libcuda.so.1 libcuda.so.580.159.03
         file /home/kubernetes/bin/nvidia/lib64/libcuda.so.1
         ";
    let cuda = |config: &str| {
        let edits = found(host, config);
        sources(&edits).first().cloned()
    };
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/opt/driver/lib']";
    assert_eq!(
        cuda(config),
        Some("/opt/driver/lib/libcuda.so.580.159.03".into())
    );
    // What is there is of no version, or not of the driver's.
    assert_eq!(cuda(""), None);
}
