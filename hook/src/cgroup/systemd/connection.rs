//! Calls D-Bus methods of systemd over a Unix socket.
//!
//! All calls of a connection share one deadline of two seconds. The calls are blocking, because the
//! hook must stay single-threaded: a D-Bus library would add an asynchronous runtime with threads.
//! Calls that do not need each other's results are sent together, so that systemd wakes up only
//! once.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::BusError;
use super::message::{MessageWriter, MethodCall};
use super::reply::{self, Message, MessageContent};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINE_LENGTH: usize = 512;
/// The maximum number of messages that one call reads while it waits for its replies. It skips
/// unrelated messages, such as signals. At the limit, the call fails.
const MAX_SKIPPED_MESSAGES: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemdSockets {
    /// The path of systemd's own socket. Only root can connect to it. No message bus is needed.
    pub private_socket_path: PathBuf,
    pub system_bus_path: PathBuf,
}

impl Default for SystemdSockets {
    fn default() -> Self {
        Self {
            private_socket_path: "/run/systemd/private".into(),
            system_bus_path: "/run/dbus/system_bus_socket".into(),
        }
    }
}

pub(super) struct Connection {
    stream: UnixStream,
    deadline: Instant,
    serial: u32,
}

impl Connection {
    /// Connects to systemd's private socket. If this fails, connects to the system bus instead.
    /// Returns `None` if nothing listens on the socket of the system bus either.
    pub(super) fn open(sockets: &SystemdSockets) -> Result<Option<Self>, BusError> {
        let deadline = Instant::now() + CONNECTION_TIMEOUT;
        if let Ok(Some(connection)) = Self::connect(&sockets.private_socket_path, deadline) {
            return Ok(Some(connection));
        }
        let Some(mut connection) = Self::connect(&sockets.system_bus_path, deadline)? else {
            return Ok(None);
        };
        // The first call must be Hello. Otherwise a message bus disconnects the client (D-Bus
        // Specification, section "Message Bus Messages").
        connection.call([MethodCall {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
            body: MessageWriter::default(),
        }])?;
        Ok(Some(connection))
    }

    fn connect(path: &Path, deadline: Instant) -> Result<Option<Self>, BusError> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) if has_no_listener(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut connection = Self {
            stream,
            deadline,
            serial: 0,
        };
        connection.authenticate()?;
        Ok(Some(connection))
    }

    /// Authenticates this process with the mechanism EXTERNAL of D-Bus: the server compares the
    /// user id with the credentials of the socket. The line BEGIN is sent before the server has
    /// answered, as sd-bus does. This saves one exchange of messages.
    fn authenticate(&mut self) -> Result<(), BusError> {
        let uid = nix::unistd::geteuid().to_string();
        let hex_uid: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.send(format!("\0AUTH EXTERNAL {hex_uid}\r\nBEGIN\r\n").as_bytes())?;
        if !self.read_line()?.starts_with(b"OK ") {
            return Err(BusError::Rejected);
        }
        Ok(())
    }

    /// Sends all method calls together, and waits for their results. If one of the calls returns an
    /// error, fails with the first such error.
    pub(super) fn call<const N: usize>(
        &mut self,
        calls: [MethodCall<'_>; N],
    ) -> Result<[CallResults; N], BusError> {
        let first_serial = self.serial + 1;
        let mut messages = Vec::new();
        for call in calls {
            self.serial += 1;
            messages.extend(call.to_message(self.serial));
        }
        self.send(&messages)?;

        let mut results = [const { None }; N];
        for _ in 0..MAX_SKIPPED_MESSAGES {
            let Message {
                reply_serial,
                content,
            } = self.receive()?;
            let index = reply_serial
                .checked_sub(first_serial)
                .map(|index| index as usize);
            let Some(result) = index.and_then(|index| results.get_mut(index)) else {
                continue;
            };
            match content {
                MessageContent::Return { signature, body } => {
                    *result = Some(CallResults { signature, body })
                }
                MessageContent::Error { name, message } => {
                    return Err(BusError::Call { name, message });
                }
                MessageContent::Other => {}
            }
            if results.iter().all(Option::is_some) {
                return Ok(results.map(Option::unwrap_or_default));
            }
        }
        Err(BusError::InvalidMessage)
    }

    fn receive(&mut self) -> Result<Message, BusError> {
        let mut fixed_header = [0; reply::FIXED_HEADER_LEN];
        self.read_exact(&mut fixed_header)?;
        let mut message = vec![0; reply::parse_length(&fixed_header)?];
        let (start, rest) = message.split_at_mut(fixed_header.len());
        start.copy_from_slice(&fixed_header);
        self.read_exact(rest)?;
        Message::parse(&message)
    }

    /// Reads one line of the authentication. The line ends with CR LF. A read does not take bytes
    /// of a later message, because the server sends nothing more before the first method call.
    fn read_line(&mut self) -> Result<Vec<u8>, BusError> {
        let mut line = Vec::new();
        let mut buffer = [0; MAX_LINE_LENGTH];
        while !line.ends_with(b"\r\n") {
            if line.len() >= MAX_LINE_LENGTH {
                return Err(BusError::InvalidMessage);
            }
            let count = self.read(&mut buffer)?;
            line.extend_from_slice(&buffer[..count]);
        }
        Ok(line)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), BusError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stream
                .set_write_timeout(Some(self.remaining_time()?))?;
            match self.stream.write(rest) {
                Ok(0) => return Err(BusError::Closed),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), BusError> {
        let mut filled = 0;
        while filled < buffer.len() {
            filled += self.read(&mut buffer[filled..])?;
        }
        Ok(())
    }

    /// Reads at least one byte before the deadline. Fails at the end of the stream.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BusError> {
        loop {
            self.stream.set_read_timeout(Some(self.remaining_time()?))?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(BusError::Closed),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn remaining_time(&self) -> Result<Duration, BusError> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(BusError::Timeout),
            remaining_time => Ok(remaining_time),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallResults {
    pub(super) signature: String,
    pub(super) body: Vec<u8>,
}

fn has_no_listener(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory
    )
}
