//! Reads the bodies of requests.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};

use crate::answer::{Answer, text};
use crate::connections::MemoryLease;

/// The time within which a client must send the whole body of a request. After it the request
/// is answered with status 408.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the body of a request was not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The bodies and answers of other requests use all the memory that the server may use.
    #[error("too many requests at once")]
    Busy,
    /// The client did not send the whole body in time.
    #[error("the body did not arrive within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The client closed the connection before it had sent the whole body.
    #[error("the body is not complete")]
    Disconnected,
}

impl BodyError {
    /// Returns the answer that tells the client of the error.
    pub(crate) fn to_answer(&self) -> Answer {
        let status = match self {
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyError::Disconnected => StatusCode::BAD_REQUEST,
        };
        text(status, format!("{self}\n"))
    }
}

/// Reads a body of at most `limit` bytes. Memory is leased as bytes arrive. The length that the
/// client announced is only used to refuse a body that is too long, so that a client cannot
/// reserve memory for bytes that it never sends.
pub(crate) async fn read(
    body: Incoming,
    limit: usize,
    lease: &mut MemoryLease,
) -> Result<Vec<u8>, BodyError> {
    let announced_length = usize::try_from(body.size_hint().lower());
    if announced_length.is_ok_and(|length| length <= limit) {
        let reception = tokio::time::timeout(TIMEOUT, receive(body, limit, lease));
        return reception.await.unwrap_or(Err(BodyError::TimedOut));
    }
    Err(BodyError::TooLong(limit))
}

async fn receive(
    mut body: Incoming,
    limit: usize,
    lease: &mut MemoryLease,
) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Disconnected)?;
        // Trailers (header fields after a chunked body) are ignored.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > limit {
            return Err(BodyError::TooLong(limit));
        }
        if length > bytes.capacity() {
            let capacity = length.max(2 * bytes.len()).min(limit);
            lease.resize(capacity).map_err(|_| BodyError::Busy)?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
        // A client that sends as fast as the server reads must not keep the tasks of other
        // connections from running.
        tokio::task::yield_now().await;
    }
    Ok(bytes)
}
