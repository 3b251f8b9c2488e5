//! An installation on a host whose dockerd does not listen at its default socket.

use serde_json::{Value, json};

use crate::site::{Site, docker_daemon};

fn docker(site: &Site, client: &str) -> Value {
    let mut status = site.command(&["status", "--json"]);
    let output = status.env("DOCKER_HOST", client).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let engines = status["engines"].as_array().unwrap();
    let docker = engines.iter().find(|engine| engine["engine"] == "docker");
    docker.cloned().unwrap_or_default()
}

#[test]
fn it_is_found_by_daemon_json_and_by_the_environment() {
    let ours = json!({"path": "/opt/boathook/current/bin/boathook-runtime"});
    let answer = json!({"Runtimes": {"boathook": ours}, "DefaultRuntime": "runc"});
    for (hosts, client) in [
        ("[\"fd://\", \"unix:///srv/d.sock\"]", ""),
        ("[]", "unix:///srv/d.sock"),
    ] {
        let site = Site::with_containerd();
        let text = format!("{{\"hosts\": {hosts}}}\n");
        site.write("etc/docker/daemon.json", &text);
        // Without a program in the usual directories and without an answer, Docker is not found.
        assert_eq!(docker(&site, client), Value::Null, "{hosts} {client}");

        // Each command queries the daemon several times.
        let answers = vec![answer.to_string(); 5];
        let daemon = docker_daemon(&site.path("srv/d.sock"), answers);
        let found = docker(&site, client);
        assert_eq!(found["found"], "/srv/d.sock", "{hosts} {client}");
        assert_eq!(found["configured"], false);
        let mut install = site.command(&["install", "--json"]);
        let output = install.env("DOCKER_HOST", client).output().unwrap();
        let done: Value = serde_json::from_slice(&output.stdout).unwrap();
        let engines = done["installed"]["engines"].as_array().unwrap();
        assert!(engines.contains(&"docker".into()), "{done}");
        let found = docker(&site, client);
        assert_eq!(found["configured"], true, "{found}");
        assert_eq!(found["loaded"], "yes", "{found}");
        daemon.join().unwrap();
    }
}
