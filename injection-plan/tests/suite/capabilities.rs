//! Tests of the list of capabilities in a request.

use device_class::host::RecordedHost;
use injection_plan::request::Request;

use crate::planning::{asker, parse, plan};

const CHIPS: &str = "version = 1\nresource = 'example.com/chip'\n\
    request = { env = 'CHIPS', capabilities_env = 'CAPS', default_capabilities = ['compute'], \
    switches = { TRACE = { on = 'trace' } } }\n\
    discover = [{ path = '/dev/chip{index:number}' }]\n\
    device = { id = 'chip-{index}', nodes = ['/dev/chip{index}'] }\n\
    [[edits]]\ncapability = 'compute'\nfiles = ['/etc/compute']\n\
    [[edits]]\ncapability = 'trace'\nfiles = ['/etc/trace']\n\
    [[edits]]\nunless_capability = 'bare'\nfiles = ['/etc/chips']\n";

#[test]
fn a_list_without_any_known_capability_is_refused() {
    let class = parse("chips", CHIPS).unwrap();
    let files = "file /etc/compute\nfile /etc/trace\nfile /etc/chips\n";
    let host = RecordedHost::parse(&format!("char /dev/chip0 120:0\n{files}")).unwrap();
    let bare = RecordedHost::parse(files).unwrap();
    for (devices, capabilities, host, is_refused) in [
        ("0", "compute", &host, false),
        ("0", "COMPUTE,utilities", &host, false),
        ("0", "all,utilities", &host, false),
        ("0", "bare", &host, false),
        ("0", "", &host, false),
        ("0", " , ", &host, false),
        ("0", "utilities", &host, true),
        ("all", "compute;video", &host, true),
        ("none", "compute video", &host, true),
        ("0", "utilities,computes", &host, true),
        // A switch is another variable, and does not make the list right.
        ("0", "trace", &host, true),
        // A container that gets no device is not refused.
        ("all", "utilities", &bare, false),
    ] {
        let env = [("CHIPS", devices), ("CAPS", capabilities), ("TRACE", "on")];
        let env: Vec<String> = env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let request = Request::find(&class, &env.into(), |_| None)
            .unwrap()
            .unwrap();
        let planned = plan(&class, &request, host, &asker());
        assert_eq!(
            planned.is_err(),
            is_refused,
            "{devices} {capabilities}: {planned:?}"
        );
        if let Err(refused) = planned {
            let wanted = format!(
                "CAPS={capabilities} names no capability of class chips, which has bare, compute;"
            );
            assert!(refused.contains(&wanted), "{refused}");
        }
    }
}
