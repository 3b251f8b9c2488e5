//! An installation on a host whose dockerd has another socket, or another daemon.json, than the
//! usual one.

use serde_json::{Value, json};

use crate::site::{Site, docker_daemon, fixture, said};
use crate::tree;

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

/// dockerd has the option in its unit, in a drop-in of the unit, or on the command line of a
/// process that no unit started.
#[test]
fn another_daemon_json_is_the_one_of_the_option() {
    const OTHER: &str = "srv/docker/daemon.json";
    let unit = "etc/systemd/system/docker.service";
    let drop_in = "etc/systemd/system/docker.service.d/config.conf";
    let start = "[Service]\nExecStart=/usr/bin/dockerd -H fd://";
    let option = "--config-file=/srv/docker/daemon.json";
    for files in [
        vec![(unit, format!("{start} {option}\n"))],
        vec![
            (unit, format!("{start}\n")),
            (
                drop_in,
                format!("[Service]\nExecStart=\nExecStart=/usr/bin/dockerd {option}\n"),
            ),
        ],
        vec![
            ("proc/70/status", "Uid:\t0\t0\t0\t0\n".to_owned()),
            ("proc/70/comm", "dockerd\n".to_owned()),
            (
                "proc/70/cmdline",
                format!("dockerd {option}").replace(' ', "\0"),
            ),
        ],
    ] {
        let site = Site::new(&fixture("docker/missing"));
        site.add_program("dockerd");
        site.write(OTHER, "{\"debug\": true}\n");
        for (file, text) in &files {
            site.write(file, text);
        }
        let before = tree::snapshot(site.root());
        said(&site.run(&["install"]));
        assert!(site.read(OTHER).contains("boathook-runtime"), "{files:?}");
        assert!(!site.path("etc/docker").exists(), "{files:?}");
        // The removal finds the file by the record, also if the option is gone.
        said(&site.run(&["uninstall"]));
        assert_eq!(tree::snapshot(site.root()), before, "{files:?}");
    }
}

/// A second dockerd, such as one of a test, has its own file.
#[test]
fn the_option_of_another_process_does_not_count_beside_the_unit() {
    let site = Site::new(&fixture("docker/missing"));
    site.add_program("dockerd");
    let unit = "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n";
    site.write("usr/lib/systemd/system/docker.service", unit);
    site.write("proc/70/status", "Uid:\t0\t0\t0\t0\n");
    site.write("proc/70/comm", "dockerd\n");
    site.write(
        "proc/70/cmdline",
        "dockerd\0--config-file\0/srv/daemon.json",
    );
    said(&site.run(&["install"]));
    assert!(site.path("etc/docker/daemon.json").is_file());
    assert!(!site.path("srv/daemon.json").exists());
}
