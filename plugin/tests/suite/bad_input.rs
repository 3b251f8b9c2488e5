//! Tests of wrong configurations and requests: each is refused with its reason, and everything
//! else is served as before.

use std::process::Command;

use harness::kubelet::Allocation;

use crate::node::{CARDS, MARK_1, NPU, NPUS, Node, PATIENCE, PLUGIN, wait_until};
use crate::pages;

/// `max_per_container` limits shared devices only, like `failRequestsGreaterThanOne` of
/// NVIDIA's plugin.
#[test]
fn more_shares_than_config_toml_allows_are_refused_with_the_reason() {
    let mut node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]);
    node.add_card(0, "mark-1", 0);
    node.add_card(1, "mark-1", 0);
    node.configure(
        "[class.dummy-npu]\nreplicas = { 'dummy.com/npu' = 2 }\nmax_per_container = 1\n\
         [class.cards]\nreplicas = { 'cards.example/mark-2' = 2 }\nmax_per_container = 1\n",
    );
    let kubelet = node.kubelet();
    node.start_plugin();
    assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 128);
    for two in [["npu-0::0", "npu-0::1"], ["npu-0::0", "npu-1::0"]] {
        let refused = kubelet.allocate(Allocation::of_ids(NPU, &two));
        assert_eq!(
            refused.unwrap_err(),
            "InvalidArgument: dummy.com/npu: 2 shares requested for one container, which may \
             have 1: more shares are not more of a device"
        );
    }
    assert_eq!(kubelet.wait_devices(PATIENCE, MARK_1).unwrap().len(), 2);
    let both = Allocation::of_ids(MARK_1, &["card-0", "card-1"]);
    kubelet.allocate(both).unwrap();
}

#[test]
fn shares_of_several_devices_are_refused_if_the_class_configures_it() {
    let text = format!("{NPUS}[sharing]\nreplicas = 8\none_device = true\n");
    let mut node = Node::new(&[("dummy-npu", &text)]);
    let kubelet = node.serve(NPU);
    let refused = kubelet.allocate(Allocation::of_ids(NPU, &["npu-0::0", "npu-1::0"]));
    assert_eq!(
        refused.unwrap_err(),
        "InvalidArgument: dummy.com/npu: shares of 2 devices requested for one container, which \
         may have shares of one device only"
    );
    // The first container gets 5 of the 8 shares of one device, and the 3 that are left are
    // enough for the second container.
    for (count, shares) in [
        (5, "npu-0::0,npu-0::1,npu-0::2,npu-0::3,npu-0::4"),
        (3, "npu-0::5,npu-0::6,npu-0::7"),
    ] {
        let given = kubelet.allocate(Allocation::new(NPU, count)).unwrap();
        assert_eq!(given.envs["DUMMY_VISIBLE_DEVICES"], "npu-0");
        assert_eq!(
            given.response.annotations["devices.boathook.dev/dummy-npu"],
            shares
        );
    }
    let refused = kubelet.allocate(Allocation::new(NPU, 9)).unwrap_err();
    assert!(
        refused.starts_with("ResourceExhausted: dummy.com/npu: no single device"),
        "{refused}"
    );
}

#[test]
fn a_table_of_no_class_is_reported_once_and_the_others_count() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE);
    node.configure("[class.dumy-npu]\nreplicas = 2\n[class.cards]\nenabled = true\n");
    let _kubelet = node.serve(NPU);
    let address = pages::address(&node);
    (0..3).for_each(|_| pages::wait_for_scan(&address));
    let log = node.log();
    for said in [
        "a table [class.dumy-npu], but there is no such class; did you mean [class.dummy-npu]?",
        "a table [class.cards], but there is no such class",
    ] {
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
}

#[test]
fn a_table_of_no_class_is_reported_by_the_list() {
    let node = Node::new(&[("dummy-npu", NPUS)]);
    node.configure("[class.dumy-npu]\nreplicas = 2\n");
    let listed = node.list(&[]);
    assert!(listed.status.success(), "{listed:?}");
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(
        said.contains("a table [class.dumy-npu], but there is no such class"),
        "{said}"
    );
}

#[test]
fn a_class_file_that_can_not_be_used_is_named_once_and_stops_no_other() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE);
    std::fs::create_dir(node.path("classes/a.toml")).unwrap();
    std::fs::write(node.path("classes/z.toml"), b"\xff").unwrap();
    node.write("classes/b.toml", &NPUS.replace("resource", "resorce"));
    let _kubelet = node.serve(NPU);
    node.wait_log("b.toml:3: unknown key `resorce`, did you mean `resource`?");
    node.wait_log("a.toml: cannot be read: it is a directory, not a regular file");
    node.wait_log("z.toml: cannot be read: ");
    let address = pages::address(&node);
    let errors = || pages::metric(&address, "boathook_class_errors");
    wait_until("all are counted", || errors() == 3);
    node.remove("classes/z.toml");
    wait_until("two are counted", || errors() == 2);
    (0..3).for_each(|_| pages::wait_for_scan(&address));
    for file in ["a.toml", "b.toml"] {
        assert_eq!(node.log().matches(file).count(), 1, "{}", node.log());
    }
}

/// The hook on the host goes on with the installed configuration, and so does the plugin, whose
/// node keeps its devices while an administrator corrects the ConfigMap.
#[test]
fn a_given_configuration_with_a_mistake_is_replaced_by_that_of_the_host() {
    let right = "classes = [\"/classes\"]\n[class.dummy-npu]\nenabled = true\n";
    for (line, reason) in [
        ("enabeld = true", "unknown key `enabeld`"),
        ("except = [{ modle = 'A' }]", "[class.dummy-npu]: "),
    ] {
        let mut node = Node::new(&[]);
        let root = node.path("host").display().to_string();
        node = node.with_arguments(&["--host-root", &root]);
        node.write("host/etc/boathook/config.toml", right);
        node.write("host/classes/dummy-npu.toml", NPUS);
        node.write(
            "config.toml",
            &format!("classes = [\"/classes\"]\n[class.dummy-npu]\n{line}\n"),
        );
        let kubelet = node.kubelet();
        node.start_plugin();
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
        node.wait_log("the configuration has a mistake, so the one that is installed on the host");
        node.wait_log(reason);
    }
}

/// The other classes are served, and the log has the mistake.
#[test]
fn only_the_class_of_a_mistake_is_left_out_if_the_host_has_no_better_configuration() {
    let text = "classes = [\"/classes\"]\n[class.cards]\nexcept = [{ modle = 'A' }]\n";
    for installed in [None, Some(text)] {
        let mut node = Node::new(&[]);
        let root = node.path("host").display().to_string();
        node = node.with_arguments(&["--host-root", &root]);
        if let Some(installed) = installed {
            node.write("host/etc/boathook/config.toml", installed);
        }
        node.write("host/classes/dummy-npu.toml", NPUS);
        node.write("host/classes/cards.toml", CARDS);
        node.write("config.toml", text);
        let kubelet = node.kubelet();
        node.start_plugin();
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
        node.wait_log("with [class.cards] of config.toml: ");
    }
}

#[test]
fn without_any_class_the_plugin_keeps_running_and_reports_it() {
    let mut node = Node::new(&[]);
    node.start_plugin();
    node.wait_log("no class files in ");
}

#[test]
fn two_classes_can_not_share_a_resource_or_a_variable() {
    for (own, others, said) in [
        (
            "DUMMY_VISIBLE_DEVICES",
            "OTHER_VISIBLE_DEVICES",
            "class left out: b: 64 devices left out: classes a and b both use dummy.com/npu; disable one",
        ),
        (
            "dummy.com/npu",
            "dummy.com/other",
            "b: classes a and b both use DUMMY_VISIBLE_DEVICES; disable one",
        ),
    ] {
        let mut node = Node::new(&[("a", NPUS), ("b", &NPUS.replace(own, others))]);
        let _kubelet = node.serve(NPU);
        node.wait_log(said);
        wait_until("one line", || {
            node.log().matches("classes a and b both").count() == 1
        });
    }
}

#[test]
fn what_can_not_work_ends_the_process_with_one_line() {
    let long = format!("/{}", "x".repeat(100));
    for (arguments, code, said) in [
        (
            &["--kubelet-dir", "kubelet"][..],
            1,
            "give an absolute path",
        ),
        (&["--kubelet-dir", &long], 1, "use a shorter path"),
        (
            &["--config", "/nonexistent.toml"],
            1,
            "configuration: /nonexistent.toml: cannot be opened: No such file",
        ),
        (&["--rescan", "0"], 2, "give a number of seconds from 0.1"),
    ] {
        let output = Command::new(PLUGIN).args(arguments).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {words}");
        assert!(words.contains(said), "{arguments:?}: {words}");
        assert!(code == 2 || words.lines().count() == 1, "{words}");
    }
}
