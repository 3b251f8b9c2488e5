//! Bodies of requests, of bounded size and number.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::text;

/// How long a client may take to send a body, including the time it waits for memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Receives bodies, as many at once as fit into a memory budget.
#[derive(Debug)]
pub struct Intake {
    limit: usize,
    /// In KiB.
    budget: Semaphore,
}

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// Too many other requests are being received.
    #[error("too many requests at once")]
    Busy,
    /// The client did not send all of it in time.
    #[error("the body did not arrive within {} s", TIMEOUT.as_secs())]
    Slow,
    /// The client closed the connection.
    #[error("the body is not complete")]
    Broken,
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let status = match self {
            BodyError::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::Slow => StatusCode::REQUEST_TIMEOUT,
            BodyError::Broken => StatusCode::BAD_REQUEST,
        };
        text(status, format!("{self}\n"))
    }
}

impl Intake {
    /// Bodies of at most `limit` bytes, of `budget` bytes together.
    pub fn new(limit: usize, budget: usize) -> Self {
        Self {
            limit,
            budget: Semaphore::new(budget.max(limit).div_ceil(1024)),
        }
    }

    /// Reads a body. The permit reserves its memory.
    pub async fn read(&self, body: Body) -> Result<(Bytes, SemaphorePermit<'_>), BodyError> {
        let announced = body.size_hint();
        let least = usize::try_from(announced.lower()).unwrap_or(usize::MAX);
        if least > self.limit {
            return Err(BodyError::TooLong(self.limit));
        }
        let most = announced
            .upper()
            .and_then(|most| usize::try_from(most).ok());
        let size = most.map_or(self.limit, |most| most.min(self.limit));
        let permits = u32::try_from(size.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = tokio::time::timeout(TIMEOUT, self.budget.acquire_many(permits));
        let Ok(Ok(permit)) = permit.await else {
            return Err(BodyError::Busy);
        };
        let body = Limited::new(body, self.limit).collect();
        match tokio::time::timeout(TIMEOUT, body).await {
            Ok(Ok(body)) => Ok((body.to_bytes(), permit)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLong(self.limit)),
            Ok(Err(_)) => Err(BodyError::Broken),
            Err(_) => Err(BodyError::Slow),
        }
    }
}
