//! Tests of all that an operator sees: lists, metrics, health and logs.

use harness::kubelet::Allocation;

use crate::node::{CARDS, MARK_1, NPU, NPUS, Node, PATIENCE, cards_with_logged_faults, wait_until};
use crate::pages::{self, get};

#[test]
fn metrics_and_health_tell_of_the_kubelet_and_the_devices() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE);
    node.start_plugin();
    let address = pages::address(&node);
    node.wait_log("waiting for the kubelet");
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    let unready = get(&address, "/readyz");
    assert!(unready.starts_with("HTTP/1.1 503 "), "{unready}");
    let reason = "no kubelet has a ListAndWatch stream for dummy.com/npu";
    assert!(unready.contains(reason), "{unready}");

    let kubelet = node.kubelet();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    wait_until("ready", || {
        get(&address, "/readyz").starts_with("HTTP/1.1 200 ")
    });
    kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
    let unknown = Allocation::of_ids(NPU, &["npu-99"]);
    kubelet.allocate(unknown).unwrap_err();
    let page = get(&address, "/metrics");
    for line in [
        r#"boathook_devices{resource="dummy.com/npu",health="healthy"} 64"#,
        r#"boathook_allocations_total{resource="dummy.com/npu",result="ok"} 1"#,
        r#"boathook_allocations_total{resource="dummy.com/npu",result="refused"} 1"#,
        r#"boathook_registrations_total{resource="dummy.com/npu",result="accepted"} 1"#,
        r#"boathook_streams{resource="dummy.com/npu"} 1"#,
        r#"boathook_allocation_duration_seconds_count{resource="dummy.com/npu"} 2"#,
    ] {
        assert!(
            page.lines().any(|written| written == line),
            "{line}\n{page}"
        );
    }
}

/// The versions on the node are read at each request, as an upgrade changes them.
#[test]
fn the_metrics_compare_the_versions_of_the_node() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE);
    node.start_plugin();
    let address = pages::address(&node);
    let versions = || {
        let page = get(&address, "/metrics");
        let lines = page.lines().map(str::to_owned);
        let lines = lines.filter(|line| line.starts_with("boathook_versions{"));
        lines.collect::<Vec<_>>()
    };
    let line = |place: &str, version: &str| {
        format!("boathook_versions{{place=\"{place}\",version=\"{version}\"}} 1")
    };
    let running = line("running", env!("CARGO_PKG_VERSION"));
    assert_eq!(versions(), std::slice::from_ref(&running));
    node.write("host/usr/lib/boathook/version", "0.9.2\n");
    std::fs::create_dir_all(node.path("host/opt/boathook")).unwrap();
    std::os::unix::fs::symlink("0.9.1", node.path("host/opt/boathook/current")).unwrap();
    let installed = line("installed", "0.9.1");
    assert_eq!(versions(), [running, installed, line("package", "0.9.2")]);
}

#[test]
fn nothing_listens_on_the_network_by_default() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let _kubelet = node.serve(NPU);
    let fds = std::fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap();
    let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let sockets: Vec<String> = targets.map(|path| path.display().to_string()).collect();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        for line in table.lines().skip(1) {
            let inode = line.split_whitespace().nth(9).unwrap();
            assert!(!sockets.contains(&format!("socket:[{inode}]")), "{line}");
        }
    }
}

#[test]
fn a_list_shows_what_would_be_advertised() {
    let node = Node::new(&[("cards", CARDS)]);
    node.add_card(0, "mark-1", 1);
    node.add_card(10, "mark-2", -1);
    node.write("host/sys/card10/health", "burnt");
    let output = node.list(&[]);
    assert_eq!(output.status.code(), Some(0));
    let table = String::from_utf8(output.stdout).unwrap();
    let wanted = "\
CLASS  DEVICE   RESOURCE              NUMA  GROUP  HEALTH
cards  card-0   cards.example/mark-1  1     -      healthy
cards  card-10  cards.example/mark-2  -     -      unhealthy: ";
    assert!(table.starts_with(wanted), "{table}");
    assert_eq!(table.lines().count(), 3, "{table}");

    node.write("classes/broken.toml", "version = 2");
    let output = node.list(&["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json = String::from_utf8(output.stdout).unwrap();
    for part in [r#""id": "card-0""#, r#""reason": "#] {
        assert!(json.contains(part), "{json}");
    }
    let problems = String::from_utf8(output.stderr).unwrap();
    for part in ["left out: ", "broken.toml"] {
        assert!(problems.contains(part), "{problems}");
    }
}

#[test]
fn a_list_is_of_the_classes_that_are_named() {
    let node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]);
    node.add_card(0, "mark-1", 1);
    let output = node.list(&["cards"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);

    let refused = |name: &str| {
        let output = node.list(&[name, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["error"]["kind"], "failure", "{json}");
        json["error"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        refused("card"),
        "no class file card.toml on this host; did you mean cards?"
    );
    let off = CARDS.replacen("version = 1", "version = 1\nenabled = false", 1);
    node.write("classes/off.toml", &off);
    assert_eq!(
        refused("off"),
        "class off is not enabled, so the plugin does not serve it; write `enabled = true`, and no \
         `serve`, below [class.off] in the configuration"
    );

    // A class file that cannot be used is an error of its own class only.
    node.write("classes/broken.toml", "version = 2");
    let output = node.list(&["broken"]);
    assert_eq!(output.status.code(), Some(1));
    let problems = String::from_utf8(output.stderr).unwrap();
    assert!(problems.contains("broken.toml:1: "), "{problems}");
    let output = node.list(&["cards"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");

    let output = node.list(&["--jsn", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["error"]["kind"], "usage", "{json}");
    assert_eq!(json["error"]["exit_code"], 2);
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("--jsn"), "{message}");
}

#[test]
fn logs_can_be_read_by_programs() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&["--log-format=json"]);
    let _kubelet = node.serve(NPU);
    node.wait_log(r#""message":"registered at "#);
    node.wait_log(r#""resource":"dummy.com/npu"}"#);
    let is_json = |line: &str| line.starts_with('{') && line.ends_with('}');
    assert!(node.log().lines().all(is_json));
}

/// With CDI no engine calls the hook for a pod that was allocated nothing.
#[test]
fn trusted_pods_without_effect_are_a_warning() {
    for (delivery, warns) in [("cdi", true), ("handler", false)] {
        let option = format!("--delivery={delivery}");
        let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&[&option]);
        node.configure("[trust]\ntrusted_pods = ['monitoring/agent']\n");
        let _kubelet = node.serve(NPU);
        let log = node.log();
        assert_eq!(
            log.contains("trusted_pods in [trust] has no effect"),
            warns,
            "{log}"
        );
    }
}

/// A plugin without privileges cannot read the kernel's log. A device whose faults are there alone
/// is healthy for ever then, of which the metric tells.
#[test]
fn a_kernel_log_that_cannot_be_read_is_reported_once_and_in_a_metric() {
    const WARNING: &str = "cards: faults that the kernel logs are not seen";
    const METRIC: &str = "boathook_kernel_log_unreadable";
    let class = cards_with_logged_faults();
    let mut node = Node::new(&[("cards", &class)]).with_arguments(&pages::SERVE);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    let address = pages::address(&node);
    wait_until("the metric", || pages::metric(&address, METRIC) == 1);
    // Each new card is a reason for another scan.
    let devices = "boathook_devices{resource=\"cards.example/mark-1\",health=\"healthy\"}";
    for card in 1..4 {
        node.add_card(card, "mark-1", 0);
        let count = usize::try_from(card).unwrap() + 1;
        wait_until("the card", || {
            get(&address, "/metrics").contains(&format!("{devices} {count}"))
        });
    }
    assert_eq!(node.log().matches(WARNING).count(), 1, "{}", node.log());
    node.write("host/dev/kmsg", "");
    wait_until("the log", || pages::metric(&address, METRIC) == 0);
}
