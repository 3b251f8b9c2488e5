//! Tests of claims: the answers to the kubelet, and the CDI specifications that the engine
//! reads.

use std::fs;

use serde_json::{Value, json};

use crate::node::{NPUS, Node, POD, allocation, claim_path, refused, result, wait, watched};

use crate::pod_resources::{PodResources, pods, pods_with_claim};

const A: [&str; 3] = ["n", "a", "u-1"];

#[tokio::test]
async fn a_claim_is_a_record_and_a_specification_until_it_is_unprepared() {
    let mut node = Node::new(NPUS, 3).await;
    let driver = node.start().await;
    node.allocate(
        "a",
        "u-1",
        &[("two", "npu-0"), ("two", "npu-2"), ("other/sub", "npu-1")],
    );
    let devices = driver.prepare_one(A).await.unwrap();
    let ids: Vec<_> = devices
        .iter()
        .map(|one| {
            (
                one.request_names.join(","),
                one.device_name.as_str(),
                one.cdi_device_ids.join(","),
            )
        })
        .collect();
    // All devices of one request are in one CDI device, so one variable names both.
    let wanted = [
        ("two", "npu-0", "boathook.dev/claim=u-1-1-two"),
        ("two", "npu-2", ""),
        ("other", "npu-1", "boathook.dev/claim=u-1-0-other"),
    ];
    let wanted = wanted.map(|(request, device, id)| (request.to_owned(), device, id.to_owned()));
    assert_eq!(ids, wanted);
    let specified = node.specified("u-1");
    let edits = &specified[1]["containerEdits"];
    assert_eq!(specified[1]["name"], "u-1-1-two");
    assert_eq!(
        edits["env"],
        json!(["DUMMY_VISIBLE_DEVICES=NPU.0,NPU.2", "NPU_MEMORY=64"])
    );
    let arguments = json!([
        "boathook-hook",
        "create-runtime",
        "--cdi",
        "npu=NPU.0,NPU.2@u-1"
    ]);
    assert_eq!(edits["hooks"][0]["args"], arguments);
    // Preparing the claim again returns the same devices, also from a new instance of the
    // driver.
    assert_eq!(driver.prepare_one(A).await.unwrap(), devices);
    let driver = node.start().await;
    assert_eq!(driver.prepare_one(A).await.unwrap(), devices);
    driver.unprepare(A).await.unwrap();
    assert_eq!(node.names("cdi"), [""; 0]);
    assert_eq!(node.names("kubelet/plugins/boathook.dev/claims"), [""; 0]);
    // A claim may be unprepared twice, and a claim that was never prepared may be unprepared.
    driver.unprepare(A).await.unwrap();
    driver.unprepare_v1beta1(["n", "b", "u-9"]).await.unwrap();
}

#[tokio::test]
async fn what_a_claim_cannot_have_is_an_error_of_that_claim_alone() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    let ours = |device: &str| result("r", "npu", device);
    let mut foreign = ours("npu-0");
    foreign["driver"] = "other.com".into();
    let mut elsewhere = ours("npu-0");
    elsewhere["pool"] = "other/npu".into();
    let opaque = |requests: Value| {
        json!({"devices": {"results": [ours("npu-1")], "config": [{"source": "FromClaim",
            "requests": requests, "opaque": {"driver": "boathook.dev", "parameters": {"x": 1}}}]}})
    };
    for (name, allocated) in [
        ("good", allocation([ours("npu-0")])),
        ("foreign", allocation([foreign])),
        ("elsewhere", allocation([elsewhere])),
        ("absent", allocation([ours("npu-7")])),
        ("hostile", allocation([ours("../../etc/passwd\n")])),
        ("parameters", opaque(json!([]))),
        ("others", opaque(json!(["q"]))),
        ("replaced", allocation([ours("npu-1")])),
        ("unallocated", Value::Null),
    ] {
        node.claim(name, &format!("u-{name}"), allocated);
    }
    let elsewhere = "pool other/npu is not of a class that this node serves";
    let absent = "pool worker/npu has no device npu-7 now";
    let unknown_key = "in `config` of the claim: unknown field `x`";
    let replaced = "made again with another uid, u-replaced";
    let cases = [
        ("good", "u-good", None),
        ("foreign", "u-foreign", None),
        ("elsewhere", "u-elsewhere", Some(elsewhere)),
        ("absent", "u-absent", Some(absent)),
        (
            "hostile",
            "u-hostile",
            Some("has no device ../../etc/passwd"),
        ),
        ("parameters", "u-parameters", Some(unknown_key)),
        ("others", "u-others", None),
        ("replaced", "u-old", Some(replaced)),
        ("unallocated", "u-unallocated", Some("nothing is allocated")),
        ("nowhere", "u-nowhere", Some("NotFound")),
        ("uid", "../u", Some("`../u` is not the uid of a claim")),
    ];
    let claims: Vec<_> = cases
        .iter()
        .map(|(name, uid, _)| ["n", *name, *uid])
        .collect();
    let answers = driver.prepare(&claims).await.unwrap();
    assert_eq!(answers.len(), cases.len());
    for (name, uid, wanted) in cases {
        match (&answers[uid], wanted) {
            (Ok(_), None) => {}
            (Err(error), Some(wanted)) => {
                assert!(error.contains(wanted), "{name}: {error}");
                assert!(error.starts_with(&format!("claim n/{name}: ")), "{error}");
            }
            (answer, _) => panic!("{name}: {answer:?}"),
        }
    }
    assert_eq!(
        node.names("cdi"),
        [
            "boathook.dev-claim-u-good.json",
            "boathook.dev-claim-u-others.json"
        ]
    );
}

/// The kubelet prepares a claim again if it was restarted before the second pod.
#[tokio::test]
async fn two_pods_of_a_claim_have_the_same_devices_until_both_have_ended() {
    let mut node = Node::new(NPUS, 1).await;
    let driver = node.start().await;
    let mut answers = Vec::new();
    // The first pod uses the claim alone, then both pods use it, then the second pod alone.
    for pods in [&["p"][..], &["p", "q"], &["q"]] {
        let allocated = allocation([result("r", "npu", "npu-0")]);
        node.claim_of(pods, "a", "u-1", allocated);
        let devices = driver.prepare_one(A).await.unwrap();
        answers.push((devices, node.specified("u-1")));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    driver.unprepare(A).await.unwrap();
    assert_eq!(node.names("cdi"), [""; 0]);
}

#[tokio::test]
async fn a_device_is_prepared_for_one_claim_at_a_time() {
    let mut node = Node::new(NPUS, 1).await;
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    let wanted = "still prepared for the claim n/a";
    refused(driver.prepare_one(["n", "b", "u-2"]), wanted).await;
    // A claim with `adminAccess` does not reserve the device.
    node.claim("admin", "u-3", allocation([watched("npu-0")]));
    driver.prepare_one(["n", "admin", "u-3"]).await.unwrap();
    // The first claim was deleted and never unprepared. The driver removes what it prepared
    // for it.
    node.server.delete(&claim_path("a"));
    driver.prepare_one(["n", "b", "u-2"]).await.unwrap();
    assert_eq!(
        node.names("kubelet/plugins/boathook.dev/claims"),
        ["u-2.json", "u-3.json"]
    );
}

/// After a restart of the node, /var/run and the CDI directory in it are empty.
#[tokio::test]
async fn after_a_reboot_specifications_are_there_again() {
    let mut node = Node::new(NPUS, 1).await;
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let devices = driver.prepare_one(A).await.unwrap();
    let specified = node.specified("u-1");
    fs::remove_dir_all(node.path("cdi")).unwrap();
    // The driver writes the specification before the kubelet prepares the claim again, because
    // a container may start again in its existing sandbox.
    node.start().await;
    node.wait_specification("u-1").await;
    fs::remove_dir_all(node.path("cdi")).unwrap();
    let driver = node.registered().await;
    assert_eq!(driver.prepare_one(A).await.unwrap(), devices);
    assert_eq!(node.specified("u-1"), specified);
    // The driver also writes the specification again if another program empties the directory
    // while the driver runs.
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.wait_specification("u-1").await;
    assert_eq!(node.specified("u-1"), specified);
}

#[tokio::test]
async fn without_the_api_server_claims_end_and_none_begins() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    node.server.stop().await;
    assert!(driver.prepare_one(A).await.is_err());
    driver.unprepare(A).await.unwrap();
    assert_eq!(node.names("cdi"), [""; 0]);
    node.server.resume().await;
    driver.prepare_one(A).await.unwrap();
}

/// When the driver starts, it removes what it prepared for claims that were deleted by force,
/// replaced by a claim of the same name, or never unprepared. Valid claims stay prepared.
#[tokio::test]
async fn claims_that_nobody_has_are_collected() {
    let mut node = Node::new(NPUS, 4).await;
    let driver = node.start().await;
    for (number, name) in ["kept", "deleted", "replaced"].iter().enumerate() {
        let uid = format!("u-{name}");
        node.allocate(name, &uid, &[("r", &format!("npu-{number}"))]);
        driver.prepare_one(["n", name, &uid]).await.unwrap();
    }
    node.kill();
    node.server.delete(&claim_path("deleted"));
    node.allocate("replaced", "u-other", &[("r", "npu-3")]);
    // The files are a specification without a claim record, a record that cannot be read, and
    // a file of another program.
    node.write("cdi/boathook.dev-claim-u-x.json", "{}");
    node.write("cdi/vendor.json", "{}");
    node.write("kubelet/plugins/boathook.dev/claims/u-bad.json", "{");
    let driver = node.start().await;
    let kept = ["boathook.dev-claim-u-kept.json", "vendor.json"];
    wait("the others are gone", || node.names("cdi") == kept).await;
    // A record that cannot be read affects its claim only. The claim is prepared again.
    node.allocate("bad", "u-bad", &[("r", "npu-3")]);
    driver.prepare_one(["n", "bad", "u-bad"]).await.unwrap();
    assert_eq!(
        node.names("kubelet/plugins/boathook.dev/claims"),
        ["u-bad.json", "u-kept.json"]
    );
}

/// The API server answers that no pod may use a claim. Before the driver removes what it
/// prepared, another instance prepares the claim for a new pod.
#[tokio::test]
async fn a_claim_that_is_prepared_anew_is_not_collected() {
    let mut node = Node::new(NPUS, 1).await;
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    let claims = "kubelet/plugins/boathook.dev/claims";
    let [record, new] = ["json", "tmp"].map(|end| node.path(&format!("{claims}/u-1.{end}")));
    node.claim_of(&[], "a", "u-1", allocation([result("r", "npu", "npu-0")]));
    node.server.when_read(&claim_path("a"), move || {
        fs::copy(&record, &new).unwrap();
        fs::rename(&new, &record).unwrap();
    });
    let b = ["n", "b", "u-2"];
    refused(driver.prepare_one(b), "for the claim n/a").await;
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-1.json"]);
    // Nobody prepares claim a again before the next attempt, so claim b gets the device.
    driver.prepare_one(b).await.unwrap();
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-2.json"]);
    assert_eq!(node.names(claims), ["u-2.json"]);
}

/// A claim is deleted by force while a pod with it runs. Its device stays with the pod until the
/// kubelet has ended it, and also while the kubelet cannot be asked.
#[tokio::test]
async fn a_claim_that_a_running_pod_uses_keeps_its_device_without_the_api_server() {
    let mut node = Node::new(NPUS, 1).await;
    let kubelet = PodResources::start(&node.path("kubelet"));
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    node.server.delete(&claim_path("a"));
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    let b = ["n", "b", "u-2"];
    let record = "kubelet/dra_manager_state";

    node.write_kubelet_claims(&["u-1"]);
    let of_the_first = "claim n/a: there is no such claim, but a pod of this node still uses it";
    refused(driver.prepare_one(b), of_the_first).await;
    node.write(record, "{");
    refused(driver.prepare_one(b), "cannot be found out").await;
    // In the driver's container, the kubelet's record is not mounted.
    fs::remove_file(node.path(record)).unwrap();
    refused(driver.prepare_one(b), "did not answer with all pods").await;
    let own = pods(&[(POD, &[])]);
    let user = pods_with_claim("a");
    kubelet.lists([own.clone(), user].concat());
    refused(driver.prepare_one(b), "a pod of this node still uses it").await;
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-1.json"]);

    kubelet.lists(own);
    node.set_pod_cgroups(&[]);
    driver.prepare_one(b).await.unwrap();
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-2.json"]);
}

/// The kubelet's pod resources API does not list init containers. The pods that could use a claim
/// are recorded when it is prepared, and have cgroups until they have ended.
#[tokio::test]
async fn a_claim_that_only_an_init_container_uses_keeps_its_device_without_the_api_server() {
    let mut node = Node::new(NPUS, 1).await;
    let kubelet = PodResources::start(&node.path("kubelet"));
    let driver = node.start().await;
    let of_the_device = allocation([result("r", "npu", "npu-0")]);
    node.claim_of(&["ended", "with-init"], "a", "u-1", of_the_device);
    driver.prepare_one(A).await.unwrap();
    node.server.delete(&claim_path("a"));
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    let b = ["n", "b", "u-2"];
    fs::remove_file(node.path("kubelet/dra_manager_state")).unwrap();
    kubelet.lists(pods(&[(POD, &[]), ("with-init", &[])]));

    refused(driver.prepare_one(b), "this pod has no cgroup below").await;
    node.set_pod_cgroups(&["with-init"]);
    refused(driver.prepare_one(b), "a pod of this node still uses it").await;
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-1.json"]);
    node.set_pod_cgroups(&["another"]);
    driver.prepare_one(b).await.unwrap();
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-2.json"]);
}

/// A claim that several pods share may be reserved for a pod after it was prepared.
#[tokio::test]
async fn a_pod_for_which_a_prepared_claim_is_reserved_later_keeps_its_device() {
    let mut node = Node::new(NPUS, 1).await;
    let kubelet = PodResources::start(&node.path("kubelet"));
    let driver = node.start().await;
    let of_the_device = || allocation([result("r", "npu", "npu-0")]);
    node.claim_of(&["first"], "a", "u-1", of_the_device());
    driver.prepare_one(A).await.unwrap();
    drop(driver);
    node.claim_of(&["later"], "a", "u-1", of_the_device());
    node.set_pod_cgroups(&["first", "later"]);
    // The claims are read at the start, and every ten minutes.
    let driver = node.start().await;
    let record = node.path("kubelet/plugins/boathook.dev/claims/u-1.json");
    wait("the pods of the claim", || {
        let text = fs::read_to_string(&record).unwrap();
        ["first", "later"].iter().all(|pod| text.contains(pod))
    })
    .await;
    node.server.delete(&claim_path("a"));
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    let b = ["n", "b", "u-2"];
    fs::remove_file(node.path("kubelet/dra_manager_state")).unwrap();
    kubelet.lists(pods(&[(POD, &[])]));
    for pod in ["later", "first"] {
        node.set_pod_cgroups(&[pod]);
        refused(driver.prepare_one(b), "a pod of this node still uses it").await;
    }
    node.set_pod_cgroups(&["another"]);
    driver.prepare_one(b).await.unwrap();
}

/// Records of older versions do not have the pods, and a claim may be reserved for a group of pods.
#[tokio::test]
async fn a_claim_whose_pods_are_not_known_keeps_its_device_without_the_api_server() {
    let mut node = Node::new(NPUS, 1).await;
    let kubelet = PodResources::start(&node.path("kubelet"));
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    let record = node.path("kubelet/plugins/boathook.dev/claims/u-1.json");
    let mut older: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    assert!(older.as_object_mut().unwrap().remove("pods").is_some());
    fs::write(&record, older.to_string()).unwrap();
    node.server.delete(&claim_path("a"));
    node.allocate("b", "u-2", &[("r", "npu-0")]);
    let b = ["n", "b", "u-2"];
    fs::remove_file(node.path("kubelet/dra_manager_state")).unwrap();
    kubelet.lists(pods(&[(POD, &[])]));
    node.set_pod_cgroups(&["with-init"]);
    refused(
        driver.prepare_one(b),
        "does not have the pods that can use it",
    )
    .await;
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-1.json"]);
}

/// A pod shows the health of its device also after the device was unplugged. The kubelet would show
/// the last health that it knows for 30 seconds, and then none.
#[tokio::test]
async fn a_prepared_device_that_is_unplugged_is_unhealthy_at_once() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(A).await.unwrap();
    for number in [0, 1] {
        fs::remove_dir_all(node.path(&format!("host/sys/npu/npu{number}"))).unwrap();
    }
    let mut health = Vec::new();
    for _ in 0..600 {
        health = driver.health().await.unwrap();
        if health.len() == 1 && health[0].health == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // Nobody has the other device, so nothing is said of it.
    assert_eq!(health.len(), 1, "{health:?}");
    assert_eq!(health[0].device.as_ref().unwrap().device_name, "npu-0");
    assert!(
        health[0]
            .message
            .contains("no longer among the devices of the host")
    );
}

#[tokio::test]
async fn many_claims_at_once() {
    let mut node = Node::new(NPUS, 200).await;
    let driver = node.start().await;
    node.wait_count(200).await;
    let names: Vec<(String, String)> = (0..200)
        .map(|n| (format!("c-{n}"), format!("u-{n}")))
        .collect();
    for (number, (name, uid)) in names.iter().enumerate() {
        node.allocate(name, uid, &[("r", &format!("npu-{number}"))]);
    }
    let claims: Vec<_> = names
        .iter()
        .map(|(name, uid)| ["n", name.as_str(), uid.as_str()])
        .collect();
    let answers = driver.prepare(&claims).await.unwrap();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    assert_eq!(node.names("cdi").len(), 200);
}
