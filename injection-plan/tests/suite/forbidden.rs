//! Tests of capabilities that an administrator forbids, and of devices that an administrator
//! hides.

use std::path::Path;

use device_class::config::Config;
use device_class::host::RecordedHost;
use device_class::load::ClassSource;
use injection_plan::request::Request;

use crate::planning;

/// The plan for a container with these variables on a host with this table of the class;
/// or why it is refused.
fn planned(class: &str, table: &str, env: &[&str]) -> Result<String, String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../device-class"));
    let file = root.join(format!("classes/{class}.toml"));
    let source = ClassSource::read(&file, &[]).unwrap();
    let config: Config = toml::from_str(&format!("[class.{class}]\n{table}")).unwrap();
    let class = config.class(&source).unwrap();
    let host = match class.name.as_str() {
        "nvidia-gpu" => "nvidia-gpu/h200".to_owned(),
        name => name.to_owned(),
    };
    let host = std::fs::read_to_string(root.join(format!("testdata/{host}/host.txt"))).unwrap();
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::find(&class, &env.into(), |_| None);
    let request = request.map_err(planning::with_causes)?.unwrap();
    let host = RecordedHost::parse(&host).unwrap();
    let plan = planning::plan(&class, &request, &host, &planning::asker())?;
    Ok(plan.to_string())
}

const CARD: &str = "XILINX_VISIBLE_DEVICES=0";
const FORBID: &str = "forbid = ['management']";

#[test]
fn a_request_that_names_a_forbidden_capability_is_refused() {
    for named in [
        "management",
        "MANAGEMENT",
        "all,management",
        " management ,x",
    ] {
        let env = [CARD, &format!("XILINX_CAPABILITIES={named}")];
        let error = planned("xilinx-fpga", FORBID, &env).unwrap_err();
        let wanted = "capability management is forbidden on this host by `forbid` in \
                      [class.xilinx-fpga] of config.toml";
        assert!(error.contains(wanted), "{named}: {error}");
        let plan = planned("xilinx-fpga", "", &env).unwrap();
        assert!(plan.contains("/dev/xclmgmt"), "{named}: {plan}");
    }
}

/// A forbidden capability is not given by `all`, by default, or as a part of another
/// capability.
#[test]
fn a_forbidden_capability_is_left_out() {
    let gpu = "NVIDIA_VISIBLE_DEVICES=0";
    for (class, forbidden, env, thing) in [
        (
            "xilinx-fpga",
            "management",
            &[CARD, "XILINX_CAPABILITIES=all"][..],
            "/dev/xclmgmt",
        ),
        ("nvidia-gpu", "utility", &[gpu], "nvidia-smi"),
        (
            "nvidia-gpu",
            "compute",
            &[gpu, "NVIDIA_DRIVER_CAPABILITIES=all"],
            "libcuda.so",
        ),
        (
            "nvidia-gpu",
            "graphics",
            &[gpu, "NVIDIA_DRIVER_CAPABILITIES=display"],
            "libGLX_nvidia",
        ),
    ] {
        let plan = planned(class, "", env).unwrap();
        assert!(plan.contains(thing), "{class} {env:?}: {plan}");
        let plan = planned(class, &format!("forbid = ['{forbidden}']"), env).unwrap();
        let note = format!("{class}: forbidden by config.toml: {forbidden}");
        let lines = plan.lines().filter(|line| !line.contains(&note));
        assert!(plan.contains(&note), "{plan}");
        assert!(!lines.collect::<String>().contains(thing), "{plan}");
    }
}

/// A device that config.toml hides is not said to be absent.
#[test]
fn a_refusal_tells_of_hidden_devices() {
    for (table, said) in [
        (
            "except = ['0', '1']",
            "there are no others; `only` or `except` in config.toml hides 2",
        ),
        ("except = ['0']", "in config.toml hides 1"),
    ] {
        let refused = planned("nvidia-gpu", table, &["NVIDIA_VISIBLE_DEVICES=0"]).unwrap_err();
        assert!(refused.contains(said), "{table}: {refused}");
    }
}

#[test]
fn a_request_for_all_is_told_that_all_are_hidden() {
    for table in ["only = []", "only = ['9']", "except = ['0', '1']"] {
        let plan = planned("nvidia-gpu", table, &["NVIDIA_VISIBLE_DEVICES=all"]).unwrap();
        let said = "not injecting anything of nvidia-gpu: config.toml hides all devices of it";
        assert!(plan.contains(said), "{table}: {plan}");
    }
}
