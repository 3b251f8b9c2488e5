//! One connection to an engine, from registration to its end.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nri_api::{
    Answer, Call, Code, ConfigureRequest, ConfigureResponse, Connection, Container, ContainerState,
    CreateContainerRequest, CreateContainerResponse, Decoder, Empty, FrameError, Kind, Message,
    PLUGIN_SERVICE, PodSandbox, RUNTIME_SERVICE, RegisterPluginRequest, Status, SynchronizeRequest,
    SynchronizeResponse, ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
    encode,
};
use prost::Message as _;
use prost::bytes::Bytes;
use runtime_config::HANDLER;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Nri;
use super::adjuster::{Adjuster, Adjustment, allocated};
use super::engine::{Engine, UnknownEngine};
use super::state::State;

/// The plugin's name and index: the engine calls its plugins in the order of their
/// indices, and this one must see the adjustments of the others.
const NAME: &str = "boathook";
const INDEX: &str = "90";

/// How long the engine may take to accept the plugin. It waits as long for the
/// registration, and accepts one plugin after the other.
const REGISTRATION: Duration = Duration::from_secs(15);

/// The engine's timeout of a request, unless it configures another.
const REQUEST: Duration = Duration::from_secs(2);

/// How many containers a message names.
const NAMED: usize = 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// There is no engine with NRI.
    #[error(
        "cannot connect to {}: {error}; containerd 2.0, CRI-O 1.30 and later listen there unless \
         NRI or its connections are disabled", socket.display()
    )]
    Connect { socket: PathBuf, error: io::Error },
    /// The engine closed the connection.
    #[error("the engine closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer does not answer.
    #[error("the engine did not accept the plugin in {} s", REGISTRATION.as_secs())]
    Silent,
    /// The engine does not want this plugin.
    #[error("the engine refused the plugin: {0}")]
    Refused(String),
    /// The peer does not use NRI's protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The engine does not accept hooks.
    #[error(transparent)]
    Engine(#[from] UnknownEngine),
}

/// A session with an engine.
struct Session<'a> {
    nri: &'a Nri,
    engine: Option<Engine>,
    /// Whether the engine has accepted the registration.
    is_registered: bool,
    /// Whether it has listed all containers. Some do before they accept.
    is_synchronized: bool,
    /// The time limit of an answer.
    deadline: Duration,
    /// The containers that Synchronize has listed so far.
    running: Vec<PodSandbox>,
    without_hook: Vec<(String, String)>,
}

/// The result of a call: the payload of its answer, or a code and the reason.
type Outcome = Result<Vec<u8>, (Code, String)>;

/// Connects and answers, until the connection ends.
pub(super) async fn run(nri: &Nri) -> Result<Infallible, SessionError> {
    let mut stream = UnixStream::connect(&nri.socket).await.map_err(|error| {
        let socket = nri.socket.clone();
        SessionError::Connect { socket, error }
    })?;
    let mut session = Session {
        nri,
        engine: None,
        is_registered: false,
        is_synchronized: false,
        deadline: REQUEST * 3 / 4,
        running: Vec::new(),
        without_hook: Vec::new(),
    };
    stream.write_all(&registration()).await?;
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 65_536];
    let since = Instant::now();
    loop {
        let length = match session.is_registered {
            true => stream.read(&mut buffer).await?,
            false => {
                let left = REGISTRATION.saturating_sub(since.elapsed());
                let read = timeout(left, stream.read(&mut buffer)).await;
                read.map_err(|_| SessionError::Silent)??
            }
        };
        if length == 0 {
            return Err(SessionError::Closed);
        }
        for message in decoder.feed(&buffer[..length])? {
            match (message.connection, message.kind) {
                (Connection::Runtime, kind) if kind == Kind::Response as u8 => {
                    accepted(&message)?;
                    session.is_registered = true;
                    session.report_if_connected();
                }
                (Connection::Plugin, kind) if kind == Kind::Request as u8 => {
                    let stream_id = message.stream;
                    let (outcome, then) = session.answer(message).await;
                    stream.write_all(&response(stream_id, outcome)).await?;
                    match then {
                        Then::GoOn => {}
                        Then::Synchronized => {
                            session.is_synchronized = true;
                            session.report_if_connected();
                        }
                        Then::End(error) => return Err(error.into()),
                    }
                }
                // Nothing else is sent to a plugin, so no answer is expected.
                _ => {}
            }
        }
    }
}

/// What to do after an answer.
enum Then {
    GoOn,
    /// The engine has listed all containers.
    Synchronized,
    End(UnknownEngine),
}

fn registration() -> Vec<u8> {
    let request = RegisterPluginRequest {
        plugin_name: NAME.into(),
        plugin_idx: INDEX.into(),
    };
    let call = Call {
        service: RUNTIME_SERVICE.into(),
        method: "RegisterPlugin".into(),
        payload: request.encode_to_vec().into(),
        timeout_nano: 0,
    };
    encode(Connection::Runtime, Kind::Request, 1, &call.encode_to_vec())
}

fn accepted(message: &Message) -> Result<(), SessionError> {
    let body = message.body.as_deref().unwrap_or_default();
    let answer = Answer::decode(body).map_err(|error| SessionError::Refused(error.to_string()))?;
    match answer.status {
        Some(status) if status.code != 0 => Err(SessionError::Refused(status.message)),
        _ => Ok(()),
    }
}

fn response(stream: u32, outcome: Outcome) -> Vec<u8> {
    let answer = match outcome {
        Ok(payload) => Answer {
            status: None,
            payload: payload.into(),
        },
        Err((code, message)) => Answer {
            status: Some(Status {
                code: code as i32,
                message,
            }),
            payload: Bytes::new(),
        },
    };
    encode(
        Connection::Plugin,
        Kind::Response,
        stream,
        &answer.encode_to_vec(),
    )
}

fn decoded<M: prost::Message + Default>(payload: &Bytes) -> Result<M, (Code, String)> {
    M::decode(payload.clone()).map_err(|error| (Code::InvalidArgument, error.to_string()))
}

impl Session<'_> {
    async fn answer(&mut self, message: Message) -> (Outcome, Then) {
        let Some(body) = message.body else {
            let reason = "the message is larger than 4 MiB".to_owned();
            return (Err((Code::ResourceExhausted, reason)), Then::GoOn);
        };
        let call: Call = match decoded(&body.into()) {
            Ok(call) => call,
            Err(error) => return (Err(error), Then::GoOn),
        };
        let (service, method) = (call.service.as_str(), call.method.as_str());
        let mut then = Then::GoOn;
        let outcome = match method {
            _ if service != PLUGIN_SERVICE => unimplemented(service, method),
            "Configure" => decoded(&call.payload).and_then(|request| {
                self.configure(&request).map_err(|error| {
                    let reason = error.to_string();
                    then = Then::End(error);
                    (Code::FailedPrecondition, reason)
                })
            }),
            "Synchronize" => decoded(&call.payload).map(|request: SynchronizeRequest| {
                if !request.more {
                    then = Then::Synchronized;
                }
                self.synchronize(request)
            }),
            "CreateContainer" => match decoded(&call.payload) {
                Ok(request) => self.create(request).await,
                Err(error) => Err(error),
            },
            "ValidateContainerAdjustment" => match decoded(&call.payload) {
                Ok(request) => self.validate(request).await,
                Err(error) => Err(error),
            },
            // Not subscribed to, and harmless.
            "Shutdown" | "StateChange" => Ok(Empty {}.encode_to_vec()),
            _ => unimplemented(service, method),
        };
        (outcome, then)
    }

    fn configure(&mut self, request: &ConfigureRequest) -> Result<Vec<u8>, UnknownEngine> {
        let engine = Engine::of(request)?;
        let limit = u64::try_from(request.request_timeout).unwrap_or(0);
        let limit = match limit {
            0 => REQUEST,
            limit => Duration::from_millis(limit),
        };
        self.deadline = limit * 3 / 4;
        self.engine = Some(engine);
        let ConfigureRequest {
            runtime_name: name,
            runtime_version: version,
            ..
        } = request;
        tracing::info!("NRI: accepted by {name} {version}");
        Ok(ConfigureResponse {
            events: engine.events(),
        }
        .encode_to_vec())
    }

    /// Logs and counts running containers to which devices were allocated and whose
    /// spec has no hook: they were started while this plugin was not connected.
    fn synchronize(&mut self, request: SynchronizeRequest) -> Vec<u8> {
        let adjuster = &self.nri.adjuster;
        self.running.extend(request.pods);
        for container in request.containers {
            let runs = matches!(
                container.state(),
                ContainerState::Running | ContainerState::Paused
            );
            let is_allocated = self.engine.is_some_and(|engine| {
                allocated(engine.family, &container).is_ok_and(|given| !given.is_empty())
            });
            if runs && is_allocated && !adjuster.is_in(container.hooks.as_ref()) {
                self.without_hook
                    .push((container.pod_sandbox_id, container.name));
            }
        }
        SynchronizeResponse { more: request.more }.encode_to_vec()
    }

    /// The engine sends requests for containers after it has accepted the plugin and
    /// listed the running ones.
    fn report_if_connected(&mut self) {
        if !(self.is_registered && self.is_synchronized) {
            return;
        }
        let pods = std::mem::take(&mut self.running);
        let mut named: Vec<String> = std::mem::take(&mut self.without_hook)
            .into_iter()
            .filter_map(|(id, container)| {
                let pod = pods.iter().find(|pod| pod.id == id);
                // Its runtime is the wrapper.
                if pod.is_some_and(|pod| pod.runtime_handler == HANDLER) {
                    return None;
                }
                let pod = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name));
                Some(format!("{container} of {}", pod.unwrap_or(id)))
            })
            .collect();
        let count = named.len();
        self.nri.metrics.without_hook(count);
        if count > 0 {
            named.truncate(NAMED);
            tracing::warn!(
                "NRI: {count} running containers have devices allocated and were started \
                 without the hook; restart their pods: {}",
                named.join(", ")
            );
        }
        self.nri.state.send_replace(State::Connected);
        tracing::info!("NRI: connected");
    }

    async fn create(&self, request: CreateContainerRequest) -> Outcome {
        let since = Instant::now();
        let outcome = self.adjustment(request.pod, request.container).await;
        let result = match &outcome {
            Ok(None) => "unchanged",
            Ok(Some(_)) => "hook",
            Err(_) => "refused",
        };
        self.nri.metrics.adjusted(result, since.elapsed());
        let adjust = outcome?.map(Into::into);
        Ok(CreateContainerResponse { adjust }.encode_to_vec())
    }

    async fn validate(&self, request: ValidateContainerAdjustmentRequest) -> Outcome {
        let adjusted = request.adjust.unwrap_or_default();
        let reject = !self.nri.adjuster.is_in(adjusted.hooks.as_ref())
            && self
                .adjustment(request.pod, request.container)
                .await?
                .is_some();
        let reason = match reject {
            true => "the container asks for devices, and boathook's hook was not added".to_owned(),
            false => String::new(),
        };
        Ok(ValidateContainerAdjustmentResponse { reject, reason }.encode_to_vec())
    }

    /// The hook and rules that a container lacks. An error refuses the container, so a
    /// container that is entitled to no devices starts without the hook instead.
    async fn adjustment(
        &self,
        pod: Option<PodSandbox>,
        container: Option<Container>,
    ) -> Result<Option<Adjustment>, (Code, String)> {
        let Some(engine) = self.engine else {
            let reason = "the plugin was not configured".to_owned();
            return Err((Code::FailedPrecondition, reason));
        };
        let (pod, container) = (pod.unwrap_or_default(), container.unwrap_or_default());
        let adjuster: Arc<Adjuster> = Arc::clone(&self.nri.adjuster);
        let is_promised = adjuster.is_promised(engine.family, &pod, &container);
        let name = format!("{} of {}/{}", container.name, pod.namespace, pod.name);
        let decide = move || adjuster.adjustment(engine, &pod, &container);
        let since = Instant::now();
        let decided = timeout(self.deadline, tokio::task::spawn_blocking(decide)).await;
        let problem = match decided {
            // On a busy machine a decision may come after the deadline.
            Ok(Ok(Ok(lacking))) if since.elapsed() <= self.deadline => return Ok(lacking),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(Ok(_))) | Err(_) => format!("no decision in {} ms", self.deadline.as_millis()),
        };
        let message = format!("boathook: container {name}: {problem}");
        match is_promised {
            true => Err((Code::Unavailable, message)),
            false => {
                tracing::warn!("NRI: without the hook: {message}");
                Ok(None)
            }
        }
    }
}

fn unimplemented(service: &str, method: &str) -> Outcome {
    let reason = format!("no method {service}/{method}");
    Err((Code::Unimplemented, reason))
}
