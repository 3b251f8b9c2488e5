//! Asks a running dockerd for its runtimes (Docker Engine API, `GET /info`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::sockets::list_sockets;
use crate::facts::HANDLER;
use crate::host::HostRoot;

/// The time limit for each read and write on dockerd's socket.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of bytes that are read of an answer of dockerd.
const MAX_ANSWER_SIZE: u64 = 1 << 20;

/// The runtimes and the default runtime of dockerd. daemon.json has the two keys in the same
/// form.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Runtimes {
    #[serde(default)]
    runtimes: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    default_runtime: String,
}

impl Runtimes {
    /// Asks the running daemon for its runtimes. Returns `None` if no daemon answers.
    pub(crate) fn from_daemon(host: &HostRoot) -> Option<Self> {
        let (_, answer) = find_answering_socket(host)?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(serde_json::from_str(body).unwrap_or_default())
    }

    pub(crate) fn path(&self, name: &str) -> Option<&str> {
        self.runtimes.get(name)?.get("path")?.as_str()
    }

    pub(crate) fn is_listed(&self, name: &str) -> bool {
        self.runtimes.contains_key(name)
    }

    pub(crate) fn is_default(&self) -> bool {
        self.default_runtime == HANDLER
    }
}

/// Returns the socket of the running daemon, or `None` if no daemon answers.
pub(crate) fn socket_of_daemon(host: &HostRoot) -> Option<PathBuf> {
    Some(find_answering_socket(host)?.0)
}

/// Returns the first socket on which a daemon answers, and the answer.
fn find_answering_socket(host: &HostRoot) -> Option<(PathBuf, String)> {
    let client = std::env::var("DOCKER_HOST").ok();
    let mut sockets = list_sockets(host, client.as_deref()).into_iter();
    sockets.find_map(|socket| query_info(host, &socket).map(|answer| (socket, answer)))
}

/// Sends the request `GET /info` to a socket, and returns the answer. The request has version 1.0 of
/// HTTP, so that dockerd does not send the answer in chunks.
fn query_info(host: &HostRoot, socket: &Path) -> Option<String> {
    let place = host.place(socket).ok()?;
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(place.through_handle())?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(MAX_ANSWER_SIZE).read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().ok()
}
