//! Of a GPU, gpu-share brings what nvidia-gpu brings: a class file cannot include another,
//! so that the two repeat the same tables.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod planning;

use std::path::Path;

use device_class::DeviceClass;
use device_class::host::RecordedHost;
use injection_plan::request::Request;
use toml::Table;

fn read(path: &str) -> String {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The plan for a container with this GPU and these variables, or why it is refused;
/// as if the class had another name and another variable.
fn plan(file: &str, host: &RecordedHost, gpu: &str, variables: &[&str]) -> Vec<String> {
    let text = read(file);
    let own: Table = text.parse().unwrap();
    let own = own["request"]["env"].as_str().unwrap();
    let text = text.replace(&format!("env = \"{own}\""), "env = \"DEVICES\"");
    let name = "class".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, file.as_ref(), &text).unwrap();
    let mut env = vec![format!("DEVICES={gpu}")];
    env.extend(variables.iter().map(|entry| (*entry).to_owned()));
    let request = Request::of(&class, &env.into(), |_| None).unwrap().unwrap();
    let plan = planning::plan(&class, &request, host, &planning::asker());
    let text = plan.map_or_else(|refused| refused, |plan| plan.to_string());
    // How many devices there are, and the variables with the memory of a share.
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("class: ") && !line.contains("ALIYUN_COM_GPU_MEM"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_share_of_a_gpu_brings_what_the_gpu_brings() {
    for (case, gpu) in [
        ("h200", "0"),
        // Its other GPU is divided by MIG.
        ("headless", "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77"),
        ("debian-535", "0"),
        ("debian-550", "0"),
    ] {
        let host = RecordedHost::parse(&read(&format!("testdata/nvidia-gpu/{case}/host.txt")));
        let host = host.unwrap();
        for variables in [
            &[][..],
            &["NVIDIA_DRIVER_CAPABILITIES=utility"],
            &["NVIDIA_DRIVER_CAPABILITIES=compute"],
            &["NVIDIA_DRIVER_CAPABILITIES=video"],
            &["NVIDIA_DRIVER_CAPABILITIES=graphics"],
            &["NVIDIA_DRIVER_CAPABILITIES=display"],
            &["NVIDIA_DRIVER_CAPABILITIES=ngx"],
            &["NVIDIA_DRIVER_CAPABILITIES=compute,compat32"],
            &["NVIDIA_DRIVER_CAPABILITIES=all"],
            &["NVIDIA_DRIVER_CAPABILITIES=unheard-of"],
            &["NVIDIA_REQUIRE_CUDA=cuda>=12.0"],
            &["NVIDIA_REQUIRE_CUDA=cuda>=99"],
            &["NVIDIA_REQUIRE_CUDA=cuda>=99", "NVIDIA_DISABLE_REQUIRE=1"],
        ] {
            let [whole, share] = ["nvidia-gpu", "gpu-share"]
                .map(|name| plan(&format!("classes/{name}.toml"), &host, gpu, variables));
            assert_eq!(share, whole, "{case}: {variables:?}");
            let is_refused = variables == ["NVIDIA_REQUIRE_CUDA=cuda>=99"];
            assert_eq!(
                whole.len() == 1,
                is_refused,
                "{case}: {variables:?}: {whole:?}"
            );
        }
    }
}

/// What no recorded host shows: paths that they do not have, and health.
#[test]
fn both_classes_have_the_same_tables() {
    let [share, whole] = ["gpu-share", "nvidia-gpu"].map(|name| {
        let mut class: Table = read(&format!("classes/{name}.toml")).parse().unwrap();
        class["request"].as_table_mut().unwrap().remove("env");
        // Of a GPU in MIG mode instances can be made, but no shares.
        let health = class["discover"][0]["health"][0].as_table_mut().unwrap();
        health.remove("advice");
        class
    });
    for key in [
        "driver_path",
        "library_directories",
        "request",
        "attributes",
        "edits",
    ] {
        assert_eq!(share[key], whole[key], "{key}");
    }
    for key in ["health", "nodes"] {
        let of = |class: &Table| class["discover"][0][key].clone();
        assert_eq!(of(&share), of(&whole), "[[discover]] {key}");
    }
    for key in ["health", "nodes", "unmask"] {
        assert_eq!(share["device"][key], whole["device"][key], "[device] {key}");
    }
}
