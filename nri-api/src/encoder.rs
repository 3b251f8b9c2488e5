//! From a message to frames.

use crate::{Connection, Kind};

/// The largest payload of a frame that is written. Engines read ttrpc's header
/// through a buffer of 4096 bytes, and a frame that is larger than what is left of
/// the buffer ends the connection.
const MAX_PAYLOAD: usize = 4096;

/// A message as it is written to the socket.
///
/// # Panics
/// The body is larger than 4 GiB.
pub fn encode(connection: Connection, kind: Kind, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a message of less than 4 GiB");
    let mut message = Vec::with_capacity(10 + body.len());
    message.extend(length.to_be_bytes());
    message.extend(stream.to_be_bytes());
    // The second byte has flags of streams, of which there are none.
    message.extend([kind as u8, 0]);
    message.extend(body);
    let mut frames = Vec::with_capacity(message.len() + 8);
    for payload in message.chunks(MAX_PAYLOAD) {
        frames.extend((connection as u32).to_be_bytes());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        frames.extend(length.to_be_bytes());
        frames.extend(payload);
    }
    frames
}
