//! Finds the sockets on which a running dockerd may listen.
//!
//! These are the default socket, the sockets on dockerd's command line (`--host`) and in
//! daemon.json (`hosts`), and the socket in the environment of this process (`DOCKER_HOST`).
//! Only Unix sockets are used; no network address is contacted. For the address `fd://` systemd
//! creates the socket, and its unit docker.socket uses the default path.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{DAEMON_JSON, find_docker_config, split_mark};
use crate::host::HostRoot;
use crate::processes::{Process, find_processes};

/// The default socket of dockerd.
const DEFAULT: &str = "/run/docker.sock";

/// The keys of daemon.json that name sockets.
#[derive(Default, Deserialize)]
struct DaemonConfig {
    #[serde(default)]
    hosts: Vec<String>,
}

/// Returns the sockets on which the daemon that reads daemon.json may listen, each once.
/// `client` is the value of `DOCKER_HOST` in the environment.
pub(crate) fn list_sockets(host: &HostRoot, client: Option<&str>) -> Vec<PathBuf> {
    let running = find_processes(host, |program| program == "dockerd");
    let config = find_docker_config(host);
    let mut addresses: Vec<String> = running
        .iter()
        .filter(|process| is_configured(process, &config))
        .flat_map(|daemon| daemon.options(&["-H", "--host"]))
        .map(str::to_owned)
        .collect();
    addresses.extend(configured_addresses(host, &config));
    let client = client.and_then(unix_socket);
    let mut sockets = vec![PathBuf::from(DEFAULT)];
    let others = addresses.iter().filter_map(|address| unix_socket(address));
    for socket in others.chain(client.filter(|socket| is_trusted(host, socket))) {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// Returns the path of a Unix socket address. Returns `None` for other kinds of addresses, and
/// for an address without a path, which means the default socket.
fn unix_socket(address: &str) -> Option<PathBuf> {
    let path = PathBuf::from(address.strip_prefix("unix://")?);
    path.is_absolute().then_some(path)
}

/// Returns whether the socket belongs to root or to the user of this process. The rootless daemon
/// of another user is not asked, because it reads that user's own daemon.json.
fn is_trusted(host: &HostRoot, socket: &Path) -> bool {
    let owner = host.stat(socket).map(|stat| stat.st_uid);
    owner.is_some_and(|owner| owner == 0 || owner == nix::unistd::geteuid().as_raw())
}

/// Returns whether a dockerd process belongs to root and reads the daemon.json `config`, which is
/// the usual one unless the process has an option.
fn is_configured(process: &Process, config: &Path) -> bool {
    let file = process.options(&["--config-file"]).last();
    let is_usual = Path::new(file.unwrap_or(DAEMON_JSON)) == config;
    process.uid == 0 && is_usual
}

/// Returns the addresses of `hosts` in daemon.json. The list is empty if the file cannot be read;
/// the plan reports that error.
fn configured_addresses(host: &HostRoot, config: &Path) -> Vec<String> {
    let text = host.read(config).ok().flatten().unwrap_or_default();
    let config: DaemonConfig = serde_json::from_str(split_mark(&text).1).unwrap_or_default();
    config.hosts
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(daemon_json: &str, command_lines: &[&str]) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        let docker = dir.path().join("etc/docker");
        fs::create_dir_all(&docker).unwrap();
        fs::write(docker.join("daemon.json"), daemon_json).unwrap();
        let srv = dir.path().join("srv");
        fs::create_dir(&srv).unwrap();
        fs::write(srv.join("d.sock"), "").unwrap();
        if nix::unistd::geteuid().is_root() {
            fs::write(srv.join("user.sock"), "").unwrap();
            std::os::unix::fs::chown(srv.join("user.sock"), Some(1000), None).unwrap();
        }
        for (pid, line) in (70..).zip(command_lines) {
            let process = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
            fs::write(process.join("comm"), "dockerd\n").unwrap();
            fs::write(process.join("cmdline"), line.replace(' ', "\0")).unwrap();
        }
        let host = HostRoot::open(dir.path()).unwrap();
        (dir, host)
    }

    fn expected(others: &[&str]) -> Vec<PathBuf> {
        let all = std::iter::once(&DEFAULT).chain(others);
        all.map(PathBuf::from).collect()
    }

    #[test]
    fn sockets_are_those_of_daemon_json_and_of_the_environment() {
        let hosts =
            "\u{feff}{\"hosts\": [\"fd://\", \"tcp://0.0.0.0:2375\", \"unix:///srv/d.sock\"]}";
        let cases: [(&str, Option<&str>, &[&str]); 7] = [
            ("{}", None, &[]),
            ("not JSON", None, &[]),
            (hosts, Some("unix:///srv/d.sock"), &["/srv/d.sock"]),
            ("{}", Some("unix:///srv/d.sock"), &["/srv/d.sock"]),
            ("{}", Some("unix:///srv/user.sock"), &[]),
            ("{}", Some("tcp://127.0.0.1:2375"), &[]),
            ("{\"hosts\": [\"unix://\"]}", Some("ssh://host"), &[]),
        ];
        for (daemon_json, client, others) in cases {
            let (_dir, host) = host(daemon_json, &[]);
            let found = list_sockets(&host, client);
            assert_eq!(found, expected(others), "{daemon_json} {client:?}");
        }
    }

    #[test]
    fn sockets_are_those_of_command_lines() {
        let lines = [
            "dockerd -H fd:// -H unix:///srv/a.sock --containerd=/run/c.sock",
            "dockerd --config-file=/etc/docker/daemon.json --host=unix:///srv/b.sock",
            "dockerd -Hunix:///srv/c.sock",
            "dockerd --config-file /srv/daemon.json -H unix:///srv/other.sock",
        ];
        let (_dir, host) = host("{}", &lines);
        let others = ["/srv/a.sock", "/srv/b.sock", "/srv/c.sock"];
        assert_eq!(list_sockets(&host, None), expected(&others));
    }
}
