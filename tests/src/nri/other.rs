//! Another vendor's plugin, which adjusts every container in the same way.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nri_api::{
    Answer, CREATE_CONTAINER, Call, ConfigureResponse, Connection, ContainerAdjustment,
    CreateContainerResponse, Decoder, Kind, RUNTIME_SERVICE, RegisterPluginRequest,
    SynchronizeRequest, SynchronizeResponse, encode,
};
use prost::Message;

/// A running plugin. It ends when dropped.
#[derive(Debug)]
pub struct OtherPlugin {
    stream: UnixStream,
    /// A message for each container that it has answered for.
    answered: Receiver<()>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl OtherPlugin {
    /// Registers with the engine, and waits until it is accepted.
    pub fn start(
        socket: &Path,
        name: &str,
        index: &str,
        adjustment: ContainerAdjustment,
    ) -> Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let request = RegisterPluginRequest {
            plugin_name: name.into(),
            plugin_idx: index.into(),
        };
        let call = Call {
            service: RUNTIME_SERVICE.into(),
            method: "RegisterPlugin".into(),
            payload: request.encode_to_vec().into(),
            timeout_nano: 0,
        };
        stream.write_all(&encode(
            Connection::Runtime,
            Kind::Request,
            1,
            &call.encode_to_vec(),
        ))?;
        let (accepted, is_accepted) = channel();
        let (answering, answered) = channel();
        let serving = stream.try_clone()?;
        let thread = std::thread::spawn(move || serve(serving, &adjustment, &accepted, &answering));
        let plugin = Self {
            stream,
            answered,
            thread: Some(thread),
        };
        is_accepted
            .recv_timeout(Duration::from_secs(20))
            .context("the engine does not accept the other plugin")?;
        Ok(plugin)
    }

    /// Waits until the engine has its answer for another container, and goes on to the
    /// plugin with the next index.
    pub fn wait_answered(&self) -> Result<()> {
        self.answered
            .recv_timeout(Duration::from_secs(20))
            .context("the engine does not ask the other plugin")
    }
}

impl Drop for OtherPlugin {
    fn drop(&mut self) {
        // The engine may have closed it already.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    mut stream: UnixStream,
    adjustment: &ContainerAdjustment,
    accepted: &Sender<()>,
    answered: &Sender<()>,
) -> Result<()> {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 8192];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        for message in decoder.feed(&buffer[..length])? {
            if message.connection != Connection::Plugin {
                continue;
            }
            let call = Call::decode(message.body.unwrap_or_default().as_slice())?;
            let payload = match call.method.as_str() {
                "Configure" => ConfigureResponse {
                    events: CREATE_CONTAINER,
                }
                .encode_to_vec(),
                "Synchronize" => {
                    let more = SynchronizeRequest::decode(call.payload)?.more;
                    SynchronizeResponse { more }.encode_to_vec()
                }
                "CreateContainer" => CreateContainerResponse {
                    adjust: Some(adjustment.clone()),
                }
                .encode_to_vec(),
                other => bail!("{other} was not subscribed to"),
            };
            let answer = Answer {
                status: None,
                payload: payload.into(),
            };
            let body = answer.encode_to_vec();
            stream.write_all(&encode(
                Connection::Plugin,
                Kind::Response,
                message.stream,
                &body,
            ))?;
            // Nobody listens to `accepted` after the first time, or to `answered` after the
            // end of the test.
            let _ = match call.method.as_str() {
                "Synchronize" => accepted.send(()),
                "CreateContainer" => answered.send(()),
                _ => Ok(()),
            };
        }
    }
}
