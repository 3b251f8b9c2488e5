//! How much memory gpu-share takes a GPU for, by its model.

use device_class::config::Config;
use device_class::discover;
use device_class::host::RecordedHost;

use crate::shipped;

/// A host with GPUs of these models.
fn host(models: &[&str]) -> RecordedHost {
    let mut host = RecordedHost::default();
    host.add_file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed May  6 2026\n",
    );
    for (number, model) in models.iter().enumerate() {
        host.add_file(
            format!("/proc/driver/nvidia/gpus/0000:1{number}:00.0/information"),
            format!("Model: \t{model}\nGPU UUID: \tGPU-{number}\nDevice Minor: \t0\n"),
        );
    }
    host
}

/// The gigabytes of a GPU of this model; `None`: it is not found.
fn gigabytes(model: &str, config: &Config) -> Option<u16> {
    let class = shipped::class("gpu-share");
    let class = config
        .with_settings(class, "gpu-share.toml".as_ref())
        .unwrap();
    let devices = discover::find_devices(&class, &host(&[model])).devices;
    devices.first().and_then(|device| device.replicas)
}

#[test]
fn memory_is_known_by_the_name_the_class_or_the_configuration() {
    let plain = Config::default();
    let text =
        "[class.gpu-share.map.model]\n'NVIDIA X1' = 'NVIDIA X1 96GB'\n'NVIDIA L4' = '22 GB'\n";
    let configured: Config = toml::from_str(text).unwrap();
    // A unit of 256 MiB, and ones of 1 MiB, of which a GPU may have too many.
    let text = "[class.gpu-share.map.gigabytes]\n24 = '96'\n48 = '49152'\n80 = '81920'\n";
    let finer: Config = toml::from_str(text).unwrap();
    for (model, config, wanted) in [
        ("NVIDIA A100-SXM4-80GB", &plain, Some(80)),
        ("NVIDIA L40S", &plain, Some(48)),
        ("NVIDIA L4", &plain, Some(24)),
        // The name has the memory of its CPU.
        ("NVIDIA GH200 480GB", &plain, Some(96)),
        ("NVIDIA X1", &plain, None),
        ("NVIDIA X1", &configured, Some(96)),
        ("NVIDIA L4", &configured, Some(22)),
        ("NVIDIA L40S", &configured, Some(48)),
        ("NVIDIA L4", &finer, Some(96)),
        ("NVIDIA L40S", &finer, Some(49_152)),
        ("NVIDIA A100-SXM4-80GB", &finer, None),
        ("NVIDIA A10G", &configured, Some(24)),
    ] {
        assert_eq!(gigabytes(model, config), wanted, "{model}");
    }
}

/// Shares of it would belong to several devices.
#[test]
fn a_gpu_that_is_divided_by_mig_has_no_shares() {
    let instance = "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access";
    let of_all_gpus = "/proc/driver/nvidia/capabilities/mig/config";
    let gpus = |path: &str| {
        let mut host = host(&["NVIDIA A100-SXM4-80GB"]);
        host.add_file(path, "DeviceFileMinor: 30\n");
        discover::find_devices(&shipped::class("gpu-share"), &host)
            .devices
            .len()
    };
    assert_eq!(gpus(instance), 0);
    assert_eq!(gpus(of_all_gpus), 1);
    assert_eq!(gpus(&instance.replace("gpu0", "gpu1")), 1);
}

/// A model that nobody knows is not left out in silence.
#[test]
fn a_model_without_a_known_memory_is_reported() {
    let host = host(&["NVIDIA X1", "NVIDIA L4"]);
    let found = discover::find_devices(&shipped::class("gpu-share"), &host);
    assert_eq!(found.devices.len(), 1);
    assert_eq!(
        found.warnings,
        [
            "/proc/driver/nvidia/gpus/0000:10:00.0: `0 NVIDIA X1` has no match of `^[1-9][0-9]*|([0-9]+) \
          ?GB`; add the memory of this model to [class.gpu-share.map.model] in config.toml"
        ]
    );
}
