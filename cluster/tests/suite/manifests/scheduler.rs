//! Tests of the manifests of the extender and of the second scheduler.

use std::fs;

use clap::Parser;
use cluster::scheduler::config::Config;
use cluster::scheduler::program::Cli;
use harness::manifests::documents;
use serde_json::{Value, json};

use super::{check, command, deploy, list, only, rendered};

/// Returns a file of the rendered ConfigMap.
fn file<'v>(objects: &'v [Value], name: &str) -> &'v str {
    only(objects, "ConfigMap")["data"][name].as_str().unwrap()
}

/// Separates the objects of the second kube-scheduler from those of the extender.
fn parted(objects: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    objects.into_iter().partition(|object| {
        let name = object["metadata"]["name"].as_str().unwrap();
        name.starts_with("boathook-kube-scheduler") || name == "boathook-volume-scheduler"
    })
}

#[test]
fn the_extender_can_read_nodes_and_pods_and_nothing_else() {
    for path in ["scheduler/extender", "scheduler/second-scheduler"] {
        let Some(objects) = rendered(path) else {
            return;
        };
        let (_, objects) = parted(objects);
        check(&objects);
        let deployment = only(&objects, "Deployment");
        Cli::try_parse_from(command(deployment, "scheduler")).unwrap();
        let wanted = json!([{"apiGroups": [""], "resources": ["nodes", "pods"],
            "verbs": ["get", "list", "watch"]}]);
        assert_eq!(only(&objects, "ClusterRole")["rules"], wanted);
        let config = crate::extender::parse_config(file(&objects, "scheduler.toml"));
        assert_eq!(managed(&scheduler_configuration(path)), names(&config));
    }
}

fn names(config: &Config) -> Vec<String> {
    let resources = config.resources.iter();
    resources.map(|one| one.name.to_string()).collect()
}

/// Reads a KubeSchedulerConfiguration. An unknown key of an extender fails the test.
fn scheduler_configuration(path: &str) -> Value {
    let text = fs::read_to_string(deploy(path).join("kube-scheduler.yaml")).unwrap();
    let mut documents = documents(&text).unwrap();
    let configuration = documents.remove(0);
    let version = &configuration["apiVersion"];
    assert_eq!(*version, "kubescheduler.config.k8s.io/v1");
    assert_eq!(configuration["kind"], "KubeSchedulerConfiguration");
    let known = "urlPrefix filterVerb prioritizeVerb weight nodeCacheCapable ignorable httpTimeout \
        managedResources enableHTTPS tlsConfig";
    let known: Vec<&str> = known.split(' ').collect();
    let [extender] = configuration["extenders"].as_array().unwrap().as_slice() else {
        panic!("not one extender");
    };
    for key in extender.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{key}");
    }
    // Pods are scheduled even if the extender does not answer. The extender binds and preempts
    // nothing.
    assert_eq!(extender["ignorable"], true);
    assert_eq!(extender["nodeCacheCapable"], true);
    assert_eq!(extender["filterVerb"], "filter");
    assert_eq!(extender["prioritizeVerb"], "prioritize");
    assert!(extender["weight"].as_u64().unwrap() > 0);
    configuration
}

/// Returns the resources for which kube-scheduler calls the extender. kube-scheduler counts
/// these resources, too.
fn managed(configuration: &Value) -> Vec<String> {
    let managed = list(&configuration["extenders"][0]["managedResources"]);
    let name = |resource: &Value| {
        assert_eq!(resource["ignoredByScheduler"], false);
        resource["name"].as_str().unwrap().to_owned()
    };
    managed.map(name).collect()
}

#[test]
fn the_second_scheduler_has_rights_of_its_own_and_alone_asks_the_extender() {
    let Some(objects) = rendered("scheduler/second-scheduler") else {
        return;
    };
    let (second, extender) = parted(objects);
    check(&second);
    let configuration = scheduler_configuration("scheduler/second-scheduler");
    let written = deploy("scheduler/second-scheduler/kube-scheduler.yaml");
    let written = fs::read_to_string(written).unwrap();
    assert_eq!(file(&second, "kube-scheduler.yaml"), written);
    assert_eq!(configuration["profiles"][0]["schedulerName"], "boathook");
    let service = only(&extender, "Service");
    let of = |key: &str| service["metadata"][key].as_str().unwrap();
    let port = &service["spec"]["ports"][0]["port"];
    let url = format!("http://{}.{}.svc:{port}", of("name"), of("namespace"));
    assert_eq!(configuration["extenders"][0]["urlPrefix"], url);
    // The role permits an update of the leader election's lease and of no other one.
    let rules = &only(&second, "Role")["rules"];
    let lock = &configuration["leaderElection"]["resourceName"];
    assert_eq!(rules[1]["resourceNames"][0], *lock);
    let accounts = [&second, &extender];
    let accounts = accounts.map(|objects| &only(objects, "ServiceAccount")["metadata"]["name"]);
    assert_ne!(accounts[0], accounts[1]);
    for binding in second.iter().filter(|object| object["subjects"].is_array()) {
        assert_eq!(binding["subjects"][0]["name"], *accounts[0], "{binding}");
    }
    let from = &only(&extender, "NetworkPolicy")["spec"]["ingress"][0]["from"][0];
    let selector = &only(&second, "Deployment")["spec"]["selector"];
    assert_eq!(from["podSelector"]["matchLabels"], selector["matchLabels"]);
}
