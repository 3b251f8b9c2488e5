//! Capabilities that programs need to use a device. A plan says which ones a container lacks, and
//! grants none.

use device_class::host::RecordedHost;
use injection_plan::plan::{CapabilityState, InjectionPlan, SpecCapabilities};
use injection_plan::request::Request;

use crate::planning::{asker, parse, plan};

const CLASS: &str = r#"version = 1
resource = "example.com/tunnel"
needs = ["CAP_NET_RAW", { capability = "CAP_NET_ADMIN", needed_for = "creating interfaces" }]
request = { env = "TUNNELS" }
discover = [{ path = "/dev/tunnel{index:number}" }]
device = { id = "tunnel-{index}", nodes = ["/dev/tunnel{index}"] }
"#;

fn plan_for(request: &str) -> InjectionPlan {
    let class = parse("tunnel", CLASS).unwrap();
    let host = RecordedHost::parse("char /dev/tunnel0 240:0\nchar /dev/tunnel1 240:1\n").unwrap();
    let env = vec![format!("TUNNELS={request}")].into();
    let request = Request::find(&class, &env, |_| None).unwrap().unwrap();
    plan(&class, &request, &host, &asker()).unwrap()
}

#[test]
fn a_capability_is_in_the_container_if_its_programs_can_have_it() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let spec = |bounding: &[&str], ambient: &[&str], uid| SpecCapabilities {
        bounding_set: names(bounding),
        ambient_set: names(ambient),
        uid,
    };
    const ADMIN: &[&str] = &["CAP_CHOWN", "CAP_NET_ADMIN"];
    let not_for = |uid| CapabilityState::FileCapabilitiesOnly { uid };
    for (capabilities, state, words) in [
        (
            spec(ADMIN, &[], 0),
            CapabilityState::Available,
            "which the container has",
        ),
        (
            spec(&["CAP_CHOWN"], &[], 0),
            CapabilityState::Unavailable,
            "which the container lacks",
        ),
        (
            spec(&[], &[], 1000),
            CapabilityState::Unavailable,
            "which the container lacks",
        ),
        // Only root keeps the bounding set when a program is executed (capabilities(7)).
        (
            spec(ADMIN, &[], 1000),
            not_for(1000),
            "which uid 1000 of the container has only in",
        ),
        (
            spec(ADMIN, ADMIN, 1000),
            CapabilityState::Available,
            "which the container has",
        ),
    ] {
        let mut plan = plan_for("0");
        plan.set_capability_states(&capabilities);
        assert_eq!(
            plan.needs[1].state_in_container,
            Some(state),
            "{capabilities:?}"
        );
        let line = format!("needs      tunnel    CAP_NET_ADMIN for creating interfaces, {words}");
        assert!(plan.to_string().contains(&line), "{plan}");
    }
}

#[test]
fn a_need_is_said_once_and_only_with_a_device() {
    let all = plan_for("all");
    let needs: Vec<String> = all.needs.iter().map(ToString::to_string).collect();
    let both = [
        "CAP_NET_RAW for using the device",
        "CAP_NET_ADMIN for creating interfaces",
    ];
    assert_eq!(needs, both);
    assert_eq!(plan_for("none").needs, []);
}
