//! Implements the protocol of QEMU's monitor and of its guest agent, in which each line is a JSON
//! object (QEMU's docs/interop/qmp-spec.txt and qemu-ga-ref).

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The time limit for QEMU to create its sockets.
const START: Duration = Duration::from_secs(30);

/// A connection, which is opened at the first call.
#[derive(Debug)]
pub(super) struct Channel {
    socket: PathBuf,
    stream: Option<UnixStream>,
    /// The bytes that were read after the last complete line.
    rest: Vec<u8>,
}

impl Channel {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            stream: None,
            rest: Vec::new(),
        }
    }

    /// Calls a command, and returns its result.
    pub(super) fn call(
        &mut self,
        command: &str,
        arguments: &Value,
        patience: Duration,
    ) -> Result<Value> {
        let deadline = Instant::now() + patience;
        self.send(command, arguments)?;
        loop {
            let mut answer = self
                .answer(deadline)
                .with_context(|| format!("{command} is not answered"))?;
            if let Some(error) = answer.get("error") {
                bail!("{command} {arguments} fails: {error}");
            }
            // An object without a result is a greeting or an event, and is skipped.
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
        }
    }

    /// Waits until the guest agent answers. Answers to earlier calls are dropped. The agent may
    /// lose a call that is sent before it starts, so the call is repeated.
    pub(super) fn synchronize(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        for id in 1.. {
            self.send("guest-sync", &json!({ "id": id }))?;
            let again = Instant::now() + Duration::from_secs(5);
            while let Ok(answer) = self.answer(again.min(deadline)) {
                if answer["return"] == id {
                    return Ok(());
                }
            }
            if Instant::now() > deadline {
                break;
            }
        }
        bail!("no guest agent answers within {patience:?}")
    }

    /// Sends a command that has no answer.
    pub(super) fn send(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let line = format!(
            "{}\n",
            json!({ "execute": command, "arguments": arguments })
        );
        let written = self.stream()?.write_all(line.as_bytes());
        written.with_context(|| format!("cannot send {command}"))
    }

    /// Reads the next object.
    fn answer(&mut self, deadline: Instant) -> Result<Value> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).context("not JSON");
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("nothing in time");
            }
            let stream = self.stream()?;
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut buffer) {
                Ok(0) => bail!("QEMU has ended"),
                Ok(length) => self.rest.extend(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn stream(&mut self) -> Result<&mut UnixStream> {
        let start = Instant::now();
        while self.stream.is_none() {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => self.stream = Some(stream),
                Err(_) if start.elapsed() < START => sleep(Duration::from_millis(50)),
                Err(error) => {
                    return Err(error).with_context(|| format!("no {}", self.socket.display()));
                }
            }
        }
        self.stream.as_mut().context("not connected")
    }
}
