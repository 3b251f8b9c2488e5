//! Asks a running dockerd which runtimes it has (Docker Engine API, `GET /info`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::is_boathook_program;
use super::sockets::list_sockets;
use crate::engine_properties::RUNTIME_HANDLER_NAME;
use crate::host::HostRoot;

/// The time limit for each read and write on dockerd's socket. If dockerd does not answer in this
/// time, it counts as not running.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of bytes of dockerd's response that are read.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// The runtimes, the default runtime and the setting `live-restore` that a running dockerd reports
/// in its response to `GET /info`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Runtimes {
    #[serde(default)]
    runtimes: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    default_runtime: String,
    #[serde(default)]
    live_restore_enabled: bool,
}

impl Runtimes {
    /// Asks the running dockerd for its runtimes. Returns `None` if no dockerd answers.
    pub(crate) fn query_daemon(host: &HostRoot) -> Option<Self> {
        let (_, response) = find_answering_socket(host)?;
        let (_, body) = response.split_once("\r\n\r\n")?;
        Some(serde_json::from_str(body).unwrap_or_default())
    }

    /// Returns the path of the program of the runtime `name`. Returns `None` if dockerd does not
    /// report a path.
    pub(crate) fn get_program_path(&self, name: &str) -> Option<&str> {
        self.runtimes.get(name)?.get("path")?.as_str()
    }

    /// Returns the names of those runtimes of the running daemon whose program is Boathook's.
    pub(crate) fn list_boathook_runtimes(&self) -> impl Iterator<Item = &str> {
        let names = self.runtimes.keys().map(String::as_str);
        names.filter(|name| self.get_program_path(name).is_some_and(is_boathook_program))
    }

    pub(crate) fn has_runtime(&self, name: &str) -> bool {
        self.runtimes.contains_key(name)
    }

    /// Returns whether Boathook's runtime is the default runtime of the running daemon.
    pub(crate) fn is_boathook_default(&self) -> bool {
        self.default_runtime == RUNTIME_HANDLER_NAME
    }

    /// Returns whether the daemon leaves its containers running when it ends.
    pub(crate) fn leaves_containers_running(&self) -> bool {
        self.live_restore_enabled
    }
}

/// Returns the socket on which a running dockerd answers. Returns `None` if no dockerd answers.
pub(crate) fn find_daemon_socket(host: &HostRoot) -> Option<PathBuf> {
    Some(find_answering_socket(host)?.0)
}

/// Returns the first socket on which a dockerd answers, and the HTTP response.
fn find_answering_socket(host: &HostRoot) -> Option<(PathBuf, String)> {
    let docker_host = std::env::var("DOCKER_HOST").ok();
    let mut sockets = list_sockets(host, docker_host.as_deref()).into_iter();
    sockets.find_map(|socket| query_info(host, &socket).map(|response| (socket, response)))
}

/// Sends the request `GET /info` to a socket, and returns the HTTP response. The request has the
/// HTTP version 1.0, so that dockerd does not split the response into chunks.
fn query_info(host: &HostRoot, socket: &Path) -> Option<String> {
    let entry = host.resolve(socket).ok()?;
    let send_request = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(entry.proc_fd_path())?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        stream.write_all(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")?;
        let mut response = String::new();
        stream
            .take(MAX_RESPONSE_BYTES)
            .read_to_string(&mut response)?;
        Ok(response)
    };
    send_request().ok()
}
