//! Answers to requests. An answer stays in memory if the client does not read it. So it counts
//! toward the server's memory limit until it has been sent.

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::http_server::connections::MemoryLease;

/// The HTTP response to a request, with its whole body.
pub type Answer = Response<Vec<u8>>;

/// Returns an answer with the status `status` and a plain text in UTF-8.
pub fn build_text_answer(status: StatusCode, text: impl Into<String>) -> Answer {
    build_answer(status, "text/plain; charset=utf-8", text.into().into())
}

/// Returns an answer with status 200 and a JSON document.
pub fn build_json_answer(document: Vec<u8>) -> Answer {
    build_answer(StatusCode::OK, "application/json", document)
}

pub(crate) fn build_answer(
    status: StatusCode,
    content_type: &'static str,
    body: Vec<u8>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

/// The body of an answer, and the lease of the memory that this body uses.
pub(crate) struct LeasedBytes {
    pub(crate) bytes: Vec<u8>,
    #[expect(
        dead_code,
        reason = "dropping it ends the lease when the answer was sent"
    )]
    pub(crate) lease: MemoryLease,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
