//! Finds the sockets on which a running dockerd may listen.
//!
//! The sockets are the default one, those that dockerd's command line (`--host`) and daemon.json
//! (`hosts`) name, and the one in the environment of this process (`DOCKER_HOST`). Only Unix
//! sockets are used. No network address is contacted. If dockerd has the address `fd://`, systemd
//! creates the socket. systemd's unit docker.socket uses the default path.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{DAEMON_JSON_PATH, find_docker_config_path, split_byte_order_mark};
use crate::host::HostRoot;
use crate::processes::{Process, find_processes};

/// The default socket of dockerd. `/var/run/docker.sock` is the same socket, because `/var/run` is
/// a link to `/run`.
const DEFAULT_SOCKET_PATH: &str = "/run/docker.sock";

/// The part of daemon.json that names sockets, such as `unix:///run/docker.sock`.
#[derive(Default, Deserialize)]
struct DaemonConfig {
    #[serde(default)]
    hosts: Vec<String>,
}

/// Returns the sockets on which the system's dockerd may listen, without duplicates. `docker_host`
/// is the value of the environment variable `DOCKER_HOST`.
pub(crate) fn list_sockets(host: &HostRoot, docker_host: Option<&str>) -> Vec<PathBuf> {
    let daemons = find_processes(host, |program| program == "dockerd");
    let config_path = find_docker_config_path(host);
    let mut addresses: Vec<String> = daemons
        .iter()
        .filter(|process| is_system_daemon(process, &config_path))
        .flat_map(|process| process.get_option_values(&["-H", "--host"]))
        .map(str::to_owned)
        .collect();
    addresses.extend(read_configured_addresses(host, &config_path));
    let client_socket = docker_host.and_then(parse_unix_socket);
    let mut sockets = vec![PathBuf::from(DEFAULT_SOCKET_PATH)];
    let daemon_sockets = addresses
        .iter()
        .filter_map(|address| parse_unix_socket(address));
    let trusted_socket = client_socket.filter(|socket| is_trusted_socket(host, socket));
    for socket in daemon_sockets.chain(trusted_socket) {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// Returns the path of a Unix socket from its address (`unix://PATH`). Returns `None` for other
/// addresses. Also returns `None` for an address without a path, which means the default socket.
fn parse_unix_socket(address: &str) -> Option<PathBuf> {
    let path = PathBuf::from(address.strip_prefix("unix://")?);
    path.is_absolute().then_some(path)
}

/// Returns whether the socket belongs to root or to the user of this process. The rootless daemon
/// of another user is not queried, because it reads the daemon.json of that user.
fn is_trusted_socket(host: &HostRoot, socket: &Path) -> bool {
    let owner_uid = host.stat(socket).map(|stat| stat.st_uid);
    owner_uid
        .is_some_and(|owner_uid| owner_uid == 0 || owner_uid == nix::unistd::geteuid().as_raw())
}

/// Returns whether a dockerd process runs as root and reads the daemon.json `config_path`. A
/// process without the option `--config-file` reads the default one.
fn is_system_daemon(process: &Process, config_path: &Path) -> bool {
    let config_file = process.get_option_values(&["--config-file"]).last();
    let reads_config_file = Path::new(config_file.unwrap_or(DAEMON_JSON_PATH)) == config_path;
    process.uid == 0 && reads_config_file
}

/// Returns the addresses in the list `hosts` of daemon.json. If the file cannot be read or parsed,
/// the result is empty, because the plan reports this error.
fn read_configured_addresses(host: &HostRoot, config_path: &Path) -> Vec<String> {
    let text = host.read(config_path).ok().flatten().unwrap_or_default();
    let config: DaemonConfig =
        serde_json::from_str(split_byte_order_mark(&text).1).unwrap_or_default();
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
        let all = std::iter::once(&DEFAULT_SOCKET_PATH).chain(others);
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
