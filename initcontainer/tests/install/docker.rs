//! A dockerd that does not listen at its default socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::Value;

use crate::site::Site;

/// A daemon that answers so many times with our runtime.
fn daemon(socket: &Path, times: usize) -> std::thread::JoinHandle<()> {
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for _ in 0..times {
            let (mut stream, _) = listener.accept().unwrap();
            let read = stream.read(&mut [0; 256]).unwrap();
            assert!(read > 0);
            let runtimes =
                "{\"boathook\": {\"path\": \"/opt/boathook/current/bin/boathook-runtime\"}}";
            let answer = "HTTP/1.0 200 OK\r\n\r\n";
            write!(
                stream,
                "{answer}{{\"Runtimes\": {runtimes}, \"DefaultRuntime\": \"runc\"}}"
            )
            .unwrap();
        }
    })
}

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
    for (hosts, client) in [
        ("[\"fd://\", \"unix:///srv/d.sock\"]", ""),
        ("[]", "unix:///srv/d.sock"),
    ] {
        let site = Site::with_containerd();
        let file = site.root().join("etc/docker/daemon.json");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{{\"hosts\": {hosts}}}\n")).unwrap();
        // No program in the usual directories, and nothing answers: not found.
        assert_eq!(docker(&site, client), Value::Null, "{hosts} {client}");

        // Asked for, then whether it has loaded the configuration, and so again.
        let daemon = daemon(&site.root().join("srv/d.sock"), 5);
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
