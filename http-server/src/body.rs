//! Reads the bodies of requests.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};

use crate::connections::Lease;

/// The time within which a client must send a body.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The bodies and answers of other requests take all memory.
    #[error("too many requests at once")]
    Busy,
    /// The client did not send the whole body in time.
    #[error("the body did not arrive within {} s", TIMEOUT.as_secs())]
    TimedOut,
    /// The client closed the connection.
    #[error("the body is not complete")]
    Disconnected,
}

impl BodyError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyError::Disconnected => StatusCode::BAD_REQUEST,
        }
    }
}

/// Reads a body of at most `limit` bytes. Memory is taken when bytes arrive, and not by the
/// length that the client has announced.
pub(crate) async fn read(
    body: Incoming,
    limit: usize,
    lease: &mut Lease,
) -> Result<Vec<u8>, BodyError> {
    let announced = usize::try_from(body.size_hint().lower());
    if announced.is_ok_and(|announced| announced <= limit) {
        let read = tokio::time::timeout(TIMEOUT, receive(body, limit, lease));
        return read.await.unwrap_or(Err(BodyError::TimedOut));
    }
    Err(BodyError::TooLong(limit))
}

async fn receive(
    mut body: Incoming,
    limit: usize,
    lease: &mut Lease,
) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Disconnected)?;
        // Trailers are ignored.
        let Ok(new) = frame.into_data() else { continue };
        let length = bytes.len() + new.len();
        if length > limit {
            return Err(BodyError::TooLong(limit));
        }
        if length > bytes.capacity() {
            let capacity = length.max(2 * bytes.len()).min(limit);
            lease.resize(capacity).map_err(|_| BodyError::Busy)?;
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&new);
        // Other connections get a turn while a body arrives as fast as it is read.
        tokio::task::yield_now().await;
    }
    Ok(bytes)
}
