//! Answers to requests. Each answer holds a lease of its memory until the client has read it.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::connections::Lease;

pub type Answer = Response<Vec<u8>>;

/// Returns an answer in plain text.
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    build_answer(status, "text/plain; charset=utf-8", text.into().into())
}

pub fn json(document: Vec<u8>) -> Answer {
    build_answer(StatusCode::OK, "application/json", document)
}

pub(crate) fn build_answer(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Answer {
    let mut answer = Response::new(bytes);
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// The bytes of an answer, with the lease of the memory that they take.
pub(crate) struct LeasedBytes {
    pub(crate) bytes: Vec<u8>,
    #[expect(dead_code, reason = "is given back when the answer has been written")]
    pub(crate) lease: Lease,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
