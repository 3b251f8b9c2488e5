//! The extender, and the second scheduler.

use std::fs;

use clap::Parser;
use cluster::scheduler::config::Config;
use cluster::scheduler::program::Cli;
use harness::manifests::documents;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde_json::{Value, json};

use super::{check, command, deploy, only, rendered, rules};

/// The file in a rendered ConfigMap.
fn file(objects: &[Value], name: &str) -> String {
    let map: ConfigMap = only(objects, "ConfigMap");
    map.data.unwrap()[name].clone()
}

/// The objects of the second kube-scheduler, and those of the extender.
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
        let deployment: Deployment = only(&objects, "Deployment");
        Cli::try_parse_from(command(&deployment, "scheduler")).unwrap();
        let role: ClusterRole = only(&objects, "ClusterRole");
        let wanted = json!([{"apiGroups": [""], "resources": ["nodes", "pods"],
            "verbs": ["get", "list", "watch"]}]);
        assert_eq!(rules(role.rules), wanted);
        let config = crate::extender::config(&file(&objects, "scheduler.toml"));
        assert_eq!(managed(&scheduler_configuration(path)), names(&config));
    }
}

fn names(config: &Config) -> Vec<String> {
    config
        .resources
        .iter()
        .map(|resource| resource.name.to_string())
        .collect()
}

/// A KubeSchedulerConfiguration. An unknown key of an extender is an error.
fn scheduler_configuration(path: &str) -> Value {
    let text = fs::read_to_string(deploy(path).join("kube-scheduler.yaml")).unwrap();
    let mut documents = documents(&text).unwrap();
    let configuration = documents.remove(0);
    assert_eq!(
        configuration["apiVersion"],
        "kubescheduler.config.k8s.io/v1"
    );
    assert_eq!(configuration["kind"], "KubeSchedulerConfiguration");
    let known = [
        "urlPrefix",
        "filterVerb",
        "prioritizeVerb",
        "weight",
        "nodeCacheCapable",
        "ignorable",
        "httpTimeout",
        "managedResources",
        "enableHTTPS",
        "tlsConfig",
    ];
    let [extender] = configuration["extenders"].as_array().unwrap().as_slice() else {
        panic!("not one extender");
    };
    for key in extender.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{key}");
    }
    // Pods are scheduled even without the extender; it binds and preempts nothing.
    assert_eq!(extender["ignorable"], true);
    assert_eq!(extender["nodeCacheCapable"], true);
    assert_eq!(
        (&extender["filterVerb"], &extender["prioritizeVerb"]),
        (&json!("filter"), &json!("prioritize"))
    );
    assert!(extender["weight"].as_u64().unwrap() > 0);
    configuration
}

/// The resources for which the extender is called; kube-scheduler counts them too.
fn managed(configuration: &Value) -> Vec<String> {
    let managed = configuration["extenders"][0]["managedResources"]
        .as_array()
        .unwrap();
    let name = |resource: &Value| {
        assert_eq!(resource["ignoredByScheduler"], false);
        resource["name"].as_str().unwrap().to_owned()
    };
    managed.iter().map(name).collect()
}

#[test]
fn the_second_scheduler_has_rights_of_its_own_and_alone_asks_the_extender() {
    let Some(objects) = rendered("scheduler/second-scheduler") else {
        return;
    };
    let (second, extender) = parted(objects);
    check(&second);
    let configuration = scheduler_configuration("scheduler/second-scheduler");
    assert_eq!(file(&second, "kube-scheduler.yaml"), {
        fs::read_to_string(deploy("scheduler/second-scheduler/kube-scheduler.yaml")).unwrap()
    });
    assert_eq!(configuration["profiles"][0]["schedulerName"], "boathook");
    let service: Service = only(&extender, "Service");
    let (name, spec) = (service.metadata.name.unwrap(), service.spec.unwrap());
    let namespace = service.metadata.namespace.unwrap();
    let url = format!(
        "http://{name}.{namespace}.svc:{}",
        spec.ports.unwrap()[0].port
    );
    assert_eq!(configuration["extenders"][0]["urlPrefix"], url);
    // The leader election's lease is the one that it may update.
    let role: Role = only(&second, "Role");
    let lock = &configuration["leaderElection"]["resourceName"];
    assert_eq!(rules(role.rules)[1]["resourceNames"][0], *lock);
    let accounts = [&second, &extender].map(|objects| {
        let account: ServiceAccount = only(objects, "ServiceAccount");
        account.metadata.name.unwrap()
    });
    assert_ne!(accounts[0], accounts[1]);
    for binding in second.iter().filter(|object| object["subjects"].is_array()) {
        assert_eq!(binding["subjects"][0]["name"], accounts[0], "{binding}");
    }
    let deployment: Deployment = only(&second, "Deployment");
    let policy: NetworkPolicy = only(&extender, "NetworkPolicy");
    let rules = policy.spec.unwrap().ingress.unwrap();
    let from = &rules[0].from.as_ref().unwrap()[0];
    assert_eq!(
        from.pod_selector.as_ref().unwrap().match_labels,
        deployment.spec.selector.match_labels
    );
}
