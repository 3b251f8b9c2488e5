//! From what is read from the socket to messages.

use crate::Connection;

/// The largest frame that is read, in bytes. Engines write 4 MiB and a header.
pub const MAX_FRAME: usize = 16 << 20;

/// The largest message that is read, in bytes: ttrpc's own limit.
pub const MAX_MESSAGE: usize = 4 << 20;

const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;

/// The other side does not speak this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes is over the limit of {MAX_FRAME}: the peer does not use NRI")]
pub struct FrameError {
    /// The length in the frame's header.
    pub length: usize,
}

/// A message of ttrpc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The connection on which it came.
    pub connection: Connection,
    /// The kind, as a [`crate::Kind`] if it is known.
    pub kind: u8,
    /// The call that it belongs to.
    pub stream: u32,
    /// What it carries; `None` if it was larger than [`MAX_MESSAGE`].
    pub body: Option<Vec<u8>>,
}

/// Puts messages together. What is kept of an unfinished one is bounded.
#[derive(Debug, Default)]
pub struct Decoder {
    header: Vec<u8>,
    /// What is left of the frame that is being read.
    left: usize,
    /// Whose frame it is. Those of other connections are dropped, as engines do.
    connection: Option<Connection>,
    plugin: Assembly,
    runtime: Assembly,
}

/// A message that is being read.
#[derive(Debug, Default)]
struct Assembly {
    header: Vec<u8>,
    body: Vec<u8>,
    left: usize,
    is_oversized: bool,
}

impl Decoder {
    /// Adds what was read, and gives the messages that are complete.
    ///
    /// # Errors
    /// A frame cannot be one; nothing more can be read.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<Message>, FrameError> {
        let mut messages = Vec::new();
        loop {
            if self.left == 0 {
                if !fill(&mut self.header, &mut bytes, FRAME_HEADER) {
                    return Ok(messages);
                }
                let header = std::mem::take(&mut self.header);
                self.connection = match number(&header[..4]) {
                    1 => Some(Connection::Plugin),
                    2 => Some(Connection::Runtime),
                    _ => None,
                };
                self.left = number(&header[4..]);
                if self.left > MAX_FRAME {
                    return Err(FrameError { length: self.left });
                }
                continue;
            }
            if bytes.is_empty() {
                return Ok(messages);
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.left));
            (bytes, self.left) = (rest, self.left - part.len());
            match self.connection {
                None => {}
                Some(connection @ Connection::Plugin) => {
                    self.plugin.feed(connection, part, &mut messages);
                }
                Some(connection @ Connection::Runtime) => {
                    self.runtime.feed(connection, part, &mut messages);
                }
            }
        }
    }
}

impl Assembly {
    fn feed(&mut self, connection: Connection, mut bytes: &[u8], messages: &mut Vec<Message>) {
        loop {
            if self.header.len() < MESSAGE_HEADER {
                if !fill(&mut self.header, &mut bytes, MESSAGE_HEADER) {
                    return;
                }
                self.left = number(&self.header[..4]);
                self.is_oversized = self.left > MAX_MESSAGE;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.left));
            (bytes, self.left) = (rest, self.left - part.len());
            if !self.is_oversized {
                self.body.extend_from_slice(part);
            }
            if self.left > 0 {
                return;
            }
            let header = std::mem::take(&mut self.header);
            let body = std::mem::take(&mut self.body);
            messages.push(Message {
                connection,
                kind: header[8],
                stream: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                body: (!self.is_oversized).then_some(body),
            });
        }
    }
}

/// Moves bytes until `buffer` has `length`; returns whether it has.
fn fill(buffer: &mut Vec<u8>, bytes: &mut &[u8], length: usize) -> bool {
    let missing = length.saturating_sub(buffer.len());
    let (part, rest) = bytes.split_at(bytes.len().min(missing));
    buffer.extend_from_slice(part);
    *bytes = rest;
    buffer.len() == length
}

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, encode};

    /// RegisterPlugin of the plugin "boathook" with the index "90", as it was
    /// written by hand from the definitions of frames, ttrpc and protobuf.
    #[test]
    fn a_registration_is_these_bytes() {
        use prost::Message as _;
        let request = crate::RegisterPluginRequest {
            plugin_name: "boathook".into(),
            plugin_idx: "90".into(),
        };
        let call = crate::Call {
            service: crate::RUNTIME_SERVICE.into(),
            method: "RegisterPlugin".into(),
            payload: request.encode_to_vec().into(),
            timeout_nano: 0,
        };
        let mut expected = vec![0, 0, 0, 2, 0, 0, 0, 72];
        expected.extend([0, 0, 0, 62, 0, 0, 0, 1, 1, 0]);
        expected.extend(b"\x0a\x1cnri.pkg.api.v1alpha1.Runtime");
        expected.extend(b"\x12\x0eRegisterPlugin");
        expected.extend(b"\x1a\x0e\x0a\x08boathook\x12\x0290");
        let written = encode(Connection::Runtime, Kind::Request, 1, &call.encode_to_vec());
        assert_eq!(written, expected);
    }

    #[test]
    fn a_message_is_cut_into_frames_that_engines_can_read_and_put_together_again() {
        let body: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        let frames = encode(Connection::Plugin, Kind::Response, 7, &body);
        let mut rest = frames.as_slice();
        let mut payloads = 0;
        while let [_, _, _, 1, a, b, c, d, more @ ..] = rest {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            assert!(length <= 4096);
            rest = &more[length..];
            payloads += length;
        }
        assert_eq!(payloads, body.len() + 10);
        let expected = Message {
            connection: Connection::Plugin,
            kind: 2,
            stream: 7,
            body: Some(body),
        };
        for size in [1, 2, 7, 4095, frames.len()] {
            let mut decoder = Decoder::default();
            let parts = frames.chunks(size).map(|part| decoder.feed(part).unwrap());
            let messages: Vec<Message> = parts.flatten().collect();
            assert_eq!(messages, std::slice::from_ref(&expected), "{size}");
        }
    }

    #[test]
    fn connections_are_independent_and_unknown_ones_are_dropped() {
        let one = encode(Connection::Plugin, Kind::Request, 1, b"one");
        let two = encode(Connection::Runtime, Kind::Response, 3, b"");
        let mut unknown = one.clone();
        unknown[3] = 9;
        // A message in two frames, with one of the other connection between them.
        let mut split = vec![0, 0, 0, 1, 0, 0, 0, 11];
        split.extend(&one[8..19]);
        split.extend(&two);
        split.extend([0, 0, 0, 1, 0, 0, 0, 2]);
        split.extend(&one[19..]);
        let bytes = [unknown, split].concat();
        let messages = Decoder::default().feed(&bytes).unwrap();
        let bodies: Vec<_> = messages.into_iter().map(|m| (m.stream, m.body)).collect();
        let expected = [(3, Some(Vec::new())), (1, Some(b"one".to_vec()))];
        assert_eq!(bodies, expected);
    }

    #[test]
    fn an_oversized_message_is_named_and_not_kept() {
        let mut decoder = Decoder::default();
        let body = vec![0; MAX_MESSAGE + 1];
        let frames = encode(Connection::Plugin, Kind::Request, 5, &body);
        let mut messages = Vec::new();
        for part in frames.chunks(65_536) {
            messages.extend(decoder.feed(part).unwrap());
            assert!(decoder.plugin.body.is_empty());
        }
        messages.extend(
            decoder
                .feed(&encode(Connection::Plugin, Kind::Request, 7, b"x"))
                .unwrap(),
        );
        let bodies: Vec<_> = messages.into_iter().map(|m| (m.stream, m.body)).collect();
        assert_eq!(bodies, [(5, None), (7, Some(b"x".to_vec()))]);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let garbage = b"HTTP/1.1 400 Bad Request\r\n";
        let length = number(b"/1.1");
        assert_eq!(Decoder::default().feed(garbage), Err(FrameError { length }));
    }
}
