//! Tests of the driver's start, update and end.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use harness::privilege::missing_for_engines;
use host_files::release_lock::NodeReleaseLock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::node::{NPUS, Node, wait};

const CLAIM: [&str; 3] = ["n", "a", "u-1"];

/// The new instance serves before the old one ends. The old instance removes only its own
/// sockets.
#[tokio::test]
async fn an_update_leaves_no_gap() {
    let mut node = Node::new(NPUS, 1).await;
    let old = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let claim = ["n", "a", "u-1"];
    let devices = old.prepare_one(claim).await.unwrap();
    node.wait_count(1).await;
    let mut process = node.replaced().unwrap();
    let new = node.registered().await;
    // The kubelet may call either instance.
    assert_eq!(new.prepare_one(claim).await.unwrap(), devices);
    assert_eq!(old.prepare_one(claim).await.unwrap(), devices);
    let pid = Pid::from_raw(process.id().cast_signed());
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(process.wait().unwrap().success());
    assert_eq!(node.names("kubelet/plugins_registry").len(), 1);
    assert_eq!(node.slices().len(), 1);
    new.unprepare(claim).await.unwrap();
    assert_eq!(node.server.writes(), 1);
}

/// The driver is the first process of its container, whose signals the kernel discards unless the
/// process handles them.
#[tokio::test]
async fn each_signal_that_ends_programs_ends_it_soon() {
    for (signal, name) in [
        (Signal::SIGTERM, "SIGTERM"),
        (Signal::SIGINT, "SIGINT"),
        (Signal::SIGQUIT, "SIGQUIT"),
    ] {
        let mut node = Node::new(NPUS, 1).await;
        node.start_with_log().await;
        kill(Pid::from_raw(node.pid().cast_signed()), signal).unwrap();
        let status = node.process.take().unwrap().wait().unwrap();
        assert!(status.success(), "{name}: {status}");
        assert_eq!(node.registration_sockets().len(), 0, "{name}");
        let log = fs::read_to_string(node.path("log")).unwrap();
        let line = format!("received {name}, exiting");
        assert!(log.contains(&line), "{name}: {log}");
    }
}

/// A reader of the log finds the claim of a failure at each `--log-level`.
#[tokio::test]
async fn the_failure_of_a_claim_names_the_claim() {
    let mut node = Node::new(NPUS, 1).await;
    node.options = ["--log-format=json", "--log-level=warn"]
        .map(str::to_owned)
        .into();
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let driver = node.start_with_log().await;
    node.wait_count(1).await;
    driver
        .prepare_one(["n", "absent", "u-9"])
        .await
        .unwrap_err();
    let record = node.path("kubelet/plugins/boathook.dev/claims/u-1.json");
    fs::create_dir(record).unwrap();
    driver.unprepare(CLAIM).await.unwrap_err();
    let log = fs::read_to_string(node.path("log")).unwrap();
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for (message, call, name, uid) in [
        ("cannot prepare ", "prepare", "absent", "u-9"),
        ("cannot unprepare ", "unprepare", "a", "u-1"),
        // A line of the thread that unprepares.
        ("cannot read the record ", "unprepare", "a", "u-1"),
    ] {
        let line = lines.iter().find(|line| {
            let text = line["message"].as_str().unwrap_or_default();
            text.starts_with(message)
        });
        let span = &line.unwrap_or_else(|| panic!("{message}: {log}"))["span"];
        let expected = json!({"name": "claim", "call": call, "namespace": "n",
            "claim": name, "uid": uid});
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(span[key], *value, "{message}: {span}");
        }
    }
}

#[tokio::test]
async fn sockets_that_are_removed_are_made_again() {
    let mut node = Node::new(NPUS, 1).await;
    node.start().await;
    let registry = node.path("kubelet/plugins_registry");
    let socket = node.names("kubelet/plugins_registry").remove(0);
    fs::remove_file(registry.join(socket)).unwrap();
    node.registered().await;
}

/// Requests a page and returns the status code.
fn status(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = "HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    write!(stream, "GET {path} {head}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split(' ').nth(1)?.to_owned())
}

/// The driver is ready only after the kubelet has registered it. A rolling update ends the old
/// instance only then.
#[tokio::test]
async fn it_is_ready_when_the_kubelet_has_registered_it() {
    let mut node = Node::new(NPUS, 1).await;
    // The port is taken from an address that clients do not use. Otherwise a client could get
    // the port before the driver binds it.
    let free = TcpListener::bind("127.64.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    node.options.push(format!("--probes={address}"));
    node.replaced();
    wait("it is alive", || {
        status(address, "/healthz").as_deref() == Some("200")
    })
    .await;
    assert_eq!(status(address, "/readyz").unwrap(), "503");
    node.registered().await;
    // The driver may register before it has scanned the devices.
    wait("it is ready", || {
        status(address, "/readyz").as_deref() == Some("200")
    })
    .await;
    // The address for probes does not serve the metrics.
    assert_eq!(status(address, "/metrics").unwrap(), "404");
}

/// A class is served either by the device plugin or by the DRA driver.
#[tokio::test]
async fn a_class_is_served_here_only_if_the_configuration_says_so() {
    let mut node = Node::new(NPUS, 1).await;
    node.configure("");
    node.start().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(node.server.writes(), 0);
}

/// The DaemonSets of two releases select the same node. The driver holds its release's lock, as the
/// plugin does, so that the other release neither installs its files nor serves.
#[tokio::test]
async fn another_release_on_the_node_is_refused() {
    const POOL_A: &str = "system/pool-a";
    const POOL_B: &str = "system/pool-b";
    let mut node = Node::new(NPUS, 1).await;
    node.options = vec![format!("--release={POOL_A}")];
    node.start().await;
    let host = node.path("host");
    let other = POOL_B.parse().unwrap();
    NodeReleaseLock::acquire_to_install(&host, &other).unwrap_err();
    node.options = vec![format!("--release={POOL_B}")];
    let refused = node.run();
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    let expected = "release system/pool-a of boathook runs on this node, and this pod is of release \
                    system/pool-b; choose different nodes for them";
    assert!(text.contains(expected), "{text}");
    assert_eq!(node.registration_sockets().len(), 1);
    // An update runs two instances of one release.
    node.options = vec![format!("--release={POOL_A}")];
    let mut earlier = node.replaced().unwrap();
    node.registered().await;
    kill(Pid::from_raw(earlier.id() as i32), Signal::SIGTERM).unwrap();
    earlier.wait().unwrap();
}

/// The directory of CDI specifications is removed on the host. In the driver's container the mount
/// still has the removed directory, so the driver ends, and the kubelet starts its container again.
#[tokio::test]
async fn a_removed_directory_of_specifications_is_mounted_again() {
    if let Some(reason) = missing_for_engines() {
        skip::report("a removed directory of specifications", &reason);
        return;
    }
    let mut node = Node::new(NPUS, 1).await;
    let (on_host, mounted) = (node.path("host-cdi"), node.path("cdi"));
    let script = format!(
        "set -e; mkdir -p {} {}; mount --bind {0} {1}; exec \"$@\"",
        on_host.display(),
        mounted.display()
    );
    let within = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    node.within = within.map(str::to_owned).to_vec();
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let driver = node.start_with_log().await;
    driver.prepare_one(CLAIM).await.unwrap();
    let file = on_host.join("boathook.dev-claim-u-1.json");
    assert!(file.exists());
    // The driver writes a file again that is removed before the directory.
    wait("the end of the directory", || {
        fs::remove_dir_all(&on_host).is_ok() || !on_host.exists()
    })
    .await;
    node.wait_killed().await;
    let mut process = node.process.take().unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(1));
    let log = fs::read_to_string(node.path("log")).unwrap();
    assert!(
        log.contains("host, and is still mounted here: ending"),
        "{log}"
    );
    // The engine creates the missing directory for the container that the kubelet starts.
    node.start_with_log().await;
    wait("the file again", || file.exists()).await;
}

/// The hook on the host goes on with the installed configuration, and so does the driver, whose
/// node keeps its devices while an administrator corrects the ConfigMap.
#[tokio::test]
async fn a_given_configuration_with_a_mistake_is_replaced_by_that_of_the_host() {
    let mut node = Node::new(NPUS, 2).await;
    let root = node.path("host").display().to_string();
    node.options = vec!["--host-root".to_owned(), root];
    let right = "classes = [\"/classes\"]\n[class.npu]\nserve = \"dra\"\n";
    node.write("host/etc/boathook/config.toml", right);
    node.write("host/classes/npu.toml", NPUS);
    node.write("config.toml", "[class.npu]\nserv = \"dra\"\n");
    node.start_with_log().await;
    node.wait_count(2).await;
    let log = fs::read_to_string(node.path("log")).unwrap();
    for words in ["the configuration has a mistake", "unknown key `serv`"] {
        assert!(log.contains(words), "{log}");
    }
}

/// Where /opt and /etc cannot be written to, hook and configuration are elsewhere on the host, and
/// the engine calls the hook by the specification alone.
#[tokio::test]
async fn the_specification_of_a_claim_names_hook_and_configuration_of_the_host() {
    let mut node = Node::new(NPUS, 1).await;
    let hook = "/var/lib/boathook/current/bin/boathook-hook";
    let config = "/var/lib/boathook-config/boathook/config.toml";
    node.options = vec![format!("--hook={hook}"), format!("--hook-config={config}")];
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let driver = node.start().await;
    driver.prepare_one(CLAIM).await.unwrap();
    let called = &node.specified("u-1")[0]["containerEdits"]["hooks"][0];
    assert_eq!(called["path"], hook);
    let arguments = called["args"].as_array().unwrap();
    let is_named = |pair: &[Value]| pair == ["--config", config];
    assert!(arguments.windows(2).any(is_named), "{called}");
}
