//! Reads the bodies of requests. Their size, the time for receiving them, and their memory are
//! limited.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};

use crate::http_server::answer::{Answer, build_text_answer};
use crate::http_server::connections::MemoryLease;

/// The time limit for the body of a request. If the whole body has not arrived by then, the answer
/// has status 408.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the server did not read the body of a request completely.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The bodies and answers of other requests have used up the server's memory limit.
    #[error("too many requests at once")]
    MemoryLimitReached,
    /// The client did not send the whole body within [`BODY_TIMEOUT`].
    #[error("the body did not arrive within {} s", BODY_TIMEOUT.as_secs())]
    TimedOut,
    /// The client closed the connection before it had sent the whole body.
    #[error("the body is not complete")]
    Disconnected,
}

impl BodyError {
    pub(crate) fn to_answer(&self) -> Answer {
        let status = match self {
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::MemoryLimitReached => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyError::Disconnected => StatusCode::BAD_REQUEST,
        };
        build_text_answer(status, format!("{self}\n"))
    }
}

/// Reads a body of at most `max_bytes` bytes. The memory lease grows as bytes arrive. The length
/// that the client announces is only used to refuse a body that is too long. Otherwise a client
/// could reserve memory for bytes that it never sends.
pub(crate) async fn read_body(
    body: Incoming,
    max_bytes: usize,
    lease: &mut MemoryLease,
) -> Result<Vec<u8>, BodyError> {
    let announced_length = usize::try_from(body.size_hint().lower());
    if announced_length.is_ok_and(|length| length <= max_bytes) {
        let reception = tokio::time::timeout(BODY_TIMEOUT, receive_body(body, max_bytes, lease));
        return reception.await.unwrap_or(Err(BodyError::TimedOut));
    }
    Err(BodyError::TooLong(max_bytes))
}

async fn receive_body(
    mut body: Incoming,
    max_bytes: usize,
    lease: &mut MemoryLease,
) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Disconnected)?;
        // Trailer fields, which can follow a chunked body, are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > max_bytes {
            return Err(BodyError::TooLong(max_bytes));
        }
        if length > bytes.capacity() {
            let capacity = length.max(2 * bytes.len()).min(max_bytes);
            lease
                .resize(capacity)
                .map_err(|_| BodyError::MemoryLimitReached)?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
        // If this task did not yield, a client that sends as fast as the server reads would keep
        // the tasks of other connections from running.
        tokio::task::yield_now().await;
    }
    Ok(bytes)
}
