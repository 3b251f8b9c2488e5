//! A plugin's connection, as an engine has it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nri_api::{
    Answer, CREATE_CONTAINER, Call, ConfigureRequest, ConfigureResponse, Connection, Container,
    ContainerAdjustment, CreateContainerRequest, CreateContainerResponse, Decoder, Kind, Message,
    PLUGIN_SERVICE, PodSandbox, RUNTIME_SERVICE, RegisterPluginRequest, Status, SynchronizeRequest,
    SynchronizeResponse, VALIDATE_CONTAINER_ADJUSTMENT, ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse, encode,
};
use prost::Message as _;

/// The largest frame that an engine can read wherever it stands in a message.
const MAX_PAYLOAD: u32 = 4096;

/// What an engine's client reports of a connection that the plugin has closed.
const CLOSED: &str = "ttrpc: closed";

/// What the engine makes of a container.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// It is created, with the plugin's adjustment.
    Container(Box<ContainerAdjustment>),
    /// The kubelet gets this error, and tries again.
    Refused(String),
}

/// Why a call of the plugin has no payload.
#[derive(Debug)]
pub enum CallError {
    /// The plugin answered with a status.
    Status(Status),
    /// It does not answer in time, or has ended: the engine drops it.
    Dropped(anyhow::Error),
}

/// A plugin that is connected.
#[derive(Debug)]
pub struct Plugin {
    stream: UnixStream,
    decoder: Decoder,
    /// What is left to be checked of the frames' lengths.
    frames: Vec<u8>,
    messages: VecDeque<Message>,
    /// The next call's.
    stream_id: u32,
    limit: Duration,
    events: i32,
    /// Whether the engine has NRI 0.10.
    has_0_10: bool,
    is_closed: bool,
}

impl Plugin {
    pub(super) fn new(stream: UnixStream, limit: Duration) -> Result<Self> {
        stream.set_nonblocking(false)?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            frames: Vec::new(),
            messages: VecDeque::new(),
            stream_id: 1,
            limit,
            events: 0,
            has_0_10: false,
            is_closed: false,
        })
    }

    /// The events that it subscribed to.
    pub fn events(&self) -> i32 {
        self.events
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Waits for RegisterPlugin; gives its stream.
    pub(super) fn registration(&mut self) -> Result<u32> {
        let message = self.next(Instant::now() + Duration::from_secs(5))?;
        let call = Call::decode(message.body.unwrap_or_default().as_slice())?;
        ensure!(message.connection == Connection::Runtime);
        ensure!((&*call.service, &*call.method) == (RUNTIME_SERVICE, "RegisterPlugin"));
        let request = RegisterPluginRequest::decode(call.payload)?;
        let index = request.plugin_idx.as_bytes();
        ensure!(
            index.len() == 2 && index.iter().all(u8::is_ascii_digit),
            "invalid plugin index {}",
            request.plugin_idx
        );
        ensure!(request.plugin_name == "boathook", "{}", request.plugin_name);
        Ok(message.stream)
    }

    pub(super) fn accept(&mut self, stream: u32) -> Result<()> {
        self.answer_registration(stream, None)
    }

    pub(super) fn refuse(&mut self, stream: u32, reason: &str) -> Result<()> {
        let status = Status {
            code: 7,
            message: reason.into(),
        };
        self.answer_registration(stream, Some(status))
    }

    /// Waits until the plugin has closed the connection.
    pub(super) fn closed(&mut self, patience: Duration) -> Result<()> {
        match self.next(Instant::now() + patience) {
            Ok(_) => bail!("a message instead of the end"),
            Err(error) if error.to_string() == CLOSED => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn answer_registration(&mut self, stream: u32, status: Option<Status>) -> Result<()> {
        let answer = Answer {
            status,
            ..Answer::default()
        };
        let answer = answer.encode_to_vec();
        let frames = encode(Connection::Runtime, Kind::Response, stream, &answer);
        Ok(self.send(&frames)?)
    }

    pub(super) fn configure(&mut self, identity: &ConfigureRequest) -> Result<()> {
        let answer: ConfigureResponse = self.answer("Configure", identity)?;
        let version = identity.runtime_version.trim_start_matches('v');
        self.has_0_10 = !version.starts_with("2.1.");
        let known = match self.has_0_10 {
            true => (1 << 14) - 1,
            false => (1 << 11) - 1,
        };
        let unknown = answer.events & !known;
        ensure!(unknown == 0, "invalid plugin events: {unknown:#x}");
        self.events = if answer.events == 0 {
            known
        } else {
            answer.events
        };
        Ok(())
    }

    /// Configures it once more, as no engine does.
    pub fn configure_again(&mut self, identity: &ConfigureRequest) -> Result<()> {
        self.configure(identity)
    }

    pub(super) fn synchronize(
        &mut self,
        request: &SynchronizeRequest,
    ) -> Result<SynchronizeResponse> {
        self.answer("Synchronize", request)
    }

    /// Creates a container, as an engine does whose only plugin this is. `earlier`
    /// is the adjustment of earlier plugins.
    pub fn create(
        &mut self,
        pod: &PodSandbox,
        container: &Container,
        earlier: ContainerAdjustment,
    ) -> Created {
        let asked = Container {
            hooks: earlier.hooks.clone().or_else(|| container.hooks.clone()),
            ..container.clone()
        };
        let request = CreateContainerRequest {
            pod: Some(pod.clone()),
            container: Some(asked),
        };
        let mut adjust = earlier;
        if !self.is_closed && self.events & CREATE_CONTAINER != 0 {
            match self.call("CreateContainer", &request.encode_to_vec()) {
                Ok(payload) => {
                    let answer = CreateContainerResponse::decode(payload.as_slice());
                    let added = answer.ok().and_then(|answer| answer.adjust);
                    let added = added.unwrap_or_default();
                    adjust.hooks = added.hooks.or(adjust.hooks);
                    // Rules without nodes are dropped silently before NRI 0.10.
                    adjust.linux = added.linux.filter(|_| self.has_0_10).or(adjust.linux);
                }
                Err(CallError::Status(status)) => return Created::Refused(status.message),
                // The container is created as if there were no such plugin.
                Err(CallError::Dropped(_)) => {}
            }
        }
        if self.events & VALIDATE_CONTAINER_ADJUSTMENT != 0 {
            let request = ValidateContainerAdjustmentRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
                adjust: Some(adjust.clone()),
            };
            let answer: Result<ValidateContainerAdjustmentResponse> =
                self.answer("ValidateContainerAdjustment", &request);
            // A plugin that is gone is asked no more from the next request on.
            if self.is_closed {
                self.events = 0;
            }
            match answer {
                Err(error) => return Created::Refused(format!("validator failed: {error:#}")),
                Ok(answer) if answer.reject => return Created::Refused(answer.reason),
                Ok(_) => {}
            }
        }
        Created::Container(Box::new(adjust))
    }

    /// A call whose answer is a message.
    fn answer<M: prost::Message + Default>(
        &mut self,
        method: &str,
        request: &impl prost::Message,
    ) -> Result<M> {
        match self.call(method, &request.encode_to_vec()) {
            Ok(payload) => Ok(M::decode(payload.as_slice())?),
            Err(CallError::Status(status)) => bail!("{method}: {}", status.message),
            Err(CallError::Dropped(error)) => Err(error.context(method.to_owned())),
        }
    }

    /// Calls any method with any payload.
    pub fn call(&mut self, method: &str, payload: &[u8]) -> Result<Vec<u8>, CallError> {
        if self.is_closed {
            return Err(CallError::Dropped(anyhow::anyhow!(CLOSED)));
        }
        let stream = self.stream_id;
        self.stream_id += 2;
        let call = Call {
            service: PLUGIN_SERVICE.into(),
            method: method.into(),
            payload: payload.to_vec().into(),
            timeout_nano: i64::try_from(self.limit.as_nanos()).unwrap_or(i64::MAX),
        };
        let frames = encode(
            Connection::Plugin,
            Kind::Request,
            stream,
            &call.encode_to_vec(),
        );
        let answered = self.send(&frames).map_err(Into::into).and_then(|()| {
            let end = Instant::now() + self.limit;
            loop {
                let message = self.next(end)?;
                if (message.connection, message.stream) == (Connection::Plugin, stream) {
                    let body = message.body.context("an oversized answer")?;
                    return Ok(Answer::decode(body.as_slice())?);
                }
            }
        });
        match answered {
            Ok(Answer {
                status: Some(status),
                ..
            }) if status.code != 0 => Err(CallError::Status(status)),
            Ok(answer) => Ok(answer.payload.to_vec()),
            Err(error) => {
                self.is_closed = true;
                Err(CallError::Dropped(error))
            }
        }
    }

    /// The next message, if one comes in time.
    fn next(&mut self, end: Instant) -> Result<Message> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Ok(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "context deadline exceeded");
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 8192];
            let length = match self.stream.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => bail!(error),
            };
            ensure!(length > 0, CLOSED);
            self.frames.extend(&buffer[..length]);
            self.check_frames()?;
            self.messages.extend(self.decoder.feed(&buffer[..length])?);
        }
    }

    /// A larger one would not fit into the buffer of the engine's reader.
    fn check_frames(&mut self) -> Result<()> {
        while let [_, _, _, _, a, b, c, d, ..] = self.frames[..] {
            let length = u32::from_be_bytes([a, b, c, d]);
            ensure!(length <= MAX_PAYLOAD, "a frame of {length} bytes");
            let whole = 8 + length as usize;
            if self.frames.len() < whole {
                return Ok(());
            }
            self.frames.drain(..whole);
        }
        Ok(())
    }
}
