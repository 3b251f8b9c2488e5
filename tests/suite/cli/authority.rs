//! Who authorizes a request, by its source and by what the container is: what ARCHITECTURE.md
//! has in "Who authorizes a request", as `boathook explain` prints it.

use serde_json::{Value, json};

use super::{boathook, bundle_of, code, host_with_thing, of_pod};

const CLASS: &str = "discover = [{ count = 4 }]\n[device]\nid = 'thing-{index}'\n\
    index = '{index}'\n[[edits]]\nfiles = ['/etc/thing.conf']\n";

const ANNOTATION: &str = "devices.boathook.dev/thing";

/// The source of a request and its text.
#[derive(Debug, Clone, Copy)]
enum Source {
    Variable(&'static str),
    Annotation(&'static str),
    Cdi(&'static str),
}
use Source::{Annotation, Cdi, Variable};

impl Source {
    fn write(self, config: &mut Value) {
        match self {
            Variable(value) => {
                config["process"] = json!({"env": [format!("THINGS={value}")]});
            }
            Annotation(value) => config["annotations"][ANNOTATION] = value.into(),
            Cdi(device) => {
                let args = [
                    "boathook-hook",
                    "prestart",
                    "--cdi",
                    &format!("thing={device}"),
                ];
                let hook = json!({"path": "/opt/boathook/bin/boathook-hook", "args": args});
                config["hooks"] = json!({"prestart": [hook]});
            }
        }
    }
}

fn no_pod() -> Value {
    json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "annotations": {}})
}

fn pod() -> Value {
    of_pod(&[
        ("io.kubernetes.cri.sandbox-namespace", "default"),
        ("io.kubernetes.cri.sandbox-name", "p"),
    ])
}

fn sandbox() -> Value {
    let mut config = pod();
    config["annotations"]["io.kubernetes.cri.container-type"] = "sandbox".into();
    config
}

/// Its annotations name a pod, and its cgroup none.
fn uncertain() -> Value {
    let mut config = pod();
    config["linux"]["cgroupsPath"] = "/user.slice/c".into();
    config
}

/// The devices that a container gets and by whom, or why it is refused.
type Expected = Result<(&'static [&'static str], &'static str), &'static str>;

/// A container, more of `[trust]`, its request, and what comes of it.
type Row = (fn() -> Value, &'static str, Source, Expected);

const RECORD: &str = "the kubelet's record for container c of pod default/p";
const ALL: &[&str] = &["thing-0", "thing-1", "thing-2", "thing-3"];
const FORBID: &str = "allow_env_outside_kubernetes = false\n";
const TRUST: &str = "trusted_pods = ['default/p']\n";

#[test]
fn each_source_is_authorized_by_what_the_container_is() {
    let nothing: Expected = Ok((&[], ""));
    let own: Expected = Ok((&["thing-1"], RECORD));
    let request: Expected = Ok((&["thing-2"], "the rules of this host: "));
    let nobody: Expected = Ok((&[], "nobody: "));
    let unsure: Expected = Err("its cgroup path `/user.slice/c` does not contain");
    let rows: [Row; 24] = [
        (no_pod, "", Variable("2"), request),
        (no_pod, "", Annotation("2"), nothing),
        (no_pod, "", Cdi("2"), request),
        (no_pod, FORBID, Variable("2"), nobody),
        (no_pod, FORBID, Annotation("2"), nothing),
        (no_pod, FORBID, Cdi("2"), request),
        (sandbox, "", Variable("2"), nobody),
        (sandbox, "", Annotation("2"), nothing),
        (sandbox, "", Cdi("2"), Err("sandbox")),
        (pod, "", Variable("1"), own),
        (pod, "", Variable("2"), own),
        (pod, "", Annotation("1"), own),
        (pod, "", Annotation("2"), Err("did not record all devices")),
        (pod, "", Cdi("1"), own),
        (pod, "", Cdi("2"), Err("did not record all devices")),
        // A claim that the kubelet has no record of.
        (
            pod,
            "",
            Cdi("thing-2@u-1"),
            Ok((&["thing-1", "thing-2"], RECORD)),
        ),
        (pod, TRUST, Variable("2"), request),
        (
            pod,
            TRUST,
            Variable("all"),
            Ok((ALL, "the rules of this host: ")),
        ),
        (pod, TRUST, Annotation("2"), request),
        (pod, TRUST, Cdi("2"), request),
        (uncertain, "", Variable("2"), unsure),
        (uncertain, "", Annotation("2"), unsure),
        (uncertain, "", Cdi("2"), unsure),
        (uncertain, "", Variable("void"), nothing),
    ];
    let host = host_with_thing(CLASS);
    host.add_file("/etc/thing.conf", "").unwrap();
    let record = host.path().join("checkpoint");
    let entry = json!({"PodUID": "7c7dd54d-787e-4d2a-16bb-d8e6ec744689", "ContainerName": "c",
        "ResourceName": "example.com/thing", "DeviceIDs": {"-1": ["thing-1"]}, "AllocResp": ""});
    let text = json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 0});
    std::fs::write(&record, text.to_string()).unwrap();
    for (container, trust, source, expected) in rows {
        let trust = format!("[trust]\nkubelet_checkpoint = {record:?}\n{trust}");
        host.write_config(&trust).unwrap();
        let mut config = container();
        source.write(&mut config);
        let bundle = bundle_of(&config);
        let directory = bundle.path().to_str().unwrap();
        let ran = boathook(&host, &["explain", "--json", "--bundle", directory], b"");
        let case = format!("{config}, {trust}: {ran:?}");
        match expected {
            Err(word) => {
                assert_eq!(ran.status.code(), Some(code::REQUEST), "{case}");
                assert!(ran.stderr.contains(word), "{case}");
            }
            Ok((devices, by)) => {
                assert!(ran.status.success(), "{case}");
                let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
                let Some(grant) = plan["grants"].get(0) else {
                    assert_eq!((devices, by), (&[][..], ""), "{case}");
                    continue;
                };
                assert_eq!(grant["devices"], json!(devices), "{case}");
                let authority = grant["authorized_by"].as_str().unwrap();
                assert!(!by.is_empty() && authority.starts_with(by), "{case}");
            }
        }
    }
}

/// The kubelet never allocates a device that is not there.
#[test]
fn a_device_cannot_come_later_in_a_pod() {
    const SAYS: &str = "a device cannot come later in a pod, which has those that the kubelet \
        recorded for it";
    const LATE: &str = "[class.thing]\nfollow = true\nlate = true\n";
    let host = host_with_thing(CLASS);
    host.add_file("/etc/thing.conf", "").unwrap();
    let record = host.path().join("checkpoint");
    let entry = json!({"PodUID": "7c7dd54d-787e-4d2a-16bb-d8e6ec744689", "ContainerName": "c",
        "ResourceName": "example.com/thing", "DeviceIDs": {"-1": ["thing-1"]}, "AllocResp": ""});
    let text = json!({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 0});
    std::fs::write(&record, text.to_string()).unwrap();
    let pod: fn() -> Value = pod;
    for (container, request, more, is_said) in [
        (pod, "thing-1?", "", true),
        (pod, "thing-1", LATE, true),
        (pod, "thing-1", "", false),
        (pod, "1", LATE, false),
        (no_pod, "thing-1?", LATE, false),
        (no_pod, "thing-9?", LATE, false),
    ] {
        let trust = format!("{more}[trust]\nkubelet_checkpoint = {record:?}\n");
        host.write_config(&trust).unwrap();
        let mut config = container();
        Variable(request).write(&mut config);
        let bundle = bundle_of(&config);
        let directory = bundle.path().to_str().unwrap();
        let ran = boathook(&host, &["explain", "--bundle", directory], b"");
        let case = format!("{config}, {more}: {ran:?}");
        assert!(ran.status.success(), "{case}");
        let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains(SAYS), is_said, "{case}");
    }
}
