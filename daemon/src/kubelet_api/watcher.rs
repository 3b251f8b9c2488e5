//! Corrects the requests of the kubelet's plugin watcher, so that the HTTP/2 library accepts them.
//!
//! The kubelet calls its client, grpc-go, with the path of the plugin's socket
//! (pkg/kubelet/pluginmanager/operationexecutor). grpc-go sends this path as the header
//! `:authority`, with `%2F` for `/`. The library h2 refuses such a request, because a host name
//! cannot contain a percent sign. So this module replaces the value of the header before h2 reads
//! it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// The length in bytes of the connection preface that a client sends first (RFC 9113, section 3.4).
const PREFACE_LENGTH: usize = 24;
/// The length in bytes of a frame's header. It has the length, the type, the flags and the stream
/// of the frame (RFC 9113, section 4.1).
const FRAME_HEADER_LENGTH: usize = 9;
/// The maximum length in bytes of a frame's payload. It is the default of SETTINGS_MAX_FRAME_SIZE,
/// which the server does not change (RFC 9113, section 6.5.2).
const MAX_PAYLOAD_BYTES: usize = 1 << 14;
/// The type of a frame that contains the headers of a request (RFC 9113, section 6.2).
const HEADERS_FRAME: u8 = 1;
/// The type of a frame with more headers, which did not fit into the preceding HEADERS frame.
const CONTINUATION_FRAME: u8 = 9;
/// The flag END_HEADERS of a HEADERS frame. It means that no CONTINUATION frame follows.
const END_HEADERS_FLAG: u8 = 4;
/// The flags PADDED and PRIORITY of a HEADERS frame. If one of them is set, other fields come
/// before the headers.
const PADDED_OR_PRIORITY_FLAGS: u8 = 0x28;
/// The maximum size in bytes of the client's dynamic table of headers. It is the default value of
/// SETTINGS_HEADER_TABLE_SIZE (RFC 9113, section 6.5.2).
const MAX_HEADER_TABLE_BYTES: usize = 4096;

const AUTHORITY_HEADER: &[u8] = b":authority";
/// The new value of `:authority`. The kubelet's other clients send the same value.
const LOCALHOST_AUTHORITY: &[u8] = b"localhost";

/// A connection from the kubelet's plugin watcher. If a request is read from this stream, the value
/// of its header `:authority` is `localhost`.
#[derive(Debug)]
pub struct WatcherStream<S> {
    stream: S,
    requests: RequestBytes,
}

impl<S> WatcherStream<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            requests: RequestBytes::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatcherStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.requests.corrected_bytes.is_empty() {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.requests.process_bytes(buffer.filled())?;
        }
        let corrected_bytes = &mut self.requests.corrected_bytes;
        let length = corrected_bytes.len().min(buf.remaining());
        buf.put_slice(&corrected_bytes[..length]);
        corrected_bytes.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatcherStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> Connected for WatcherStream<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// The bytes that a client sends. They are split into frames, and the header `:authority` of each
/// request is replaced.
#[derive(Default)]
struct RequestBytes {
    /// Whether the client's whole connection preface has arrived.
    has_preface: bool,
    /// The bytes of a preface or frame that has not arrived completely yet.
    incomplete_frame: Vec<u8>,
    /// The bytes for the server, in which the header is already replaced.
    corrected_bytes: Vec<u8>,
    decoder: HeaderDecoder,
}

impl std::fmt::Debug for RequestBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBytes").finish_non_exhaustive()
    }
}

impl RequestBytes {
    fn process_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.incomplete_frame.extend(bytes);
        if !self.has_preface {
            if self.incomplete_frame.len() < PREFACE_LENGTH {
                return Ok(());
            }
            self.has_preface = true;
            self.corrected_bytes
                .extend(self.incomplete_frame.drain(..PREFACE_LENGTH));
        }
        while let [high, middle, low, kind, flags, stream @ ..] = self.incomplete_frame.as_slice()
            && let Some(stream) = stream.first_chunk::<4>()
        {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if length > MAX_PAYLOAD_BYTES {
                return Err(invalid_data("a frame is too long"));
            }
            let (kind, flags, stream) = (*kind, *flags, *stream);
            let end = FRAME_HEADER_LENGTH + length;
            let Some(payload) = self.incomplete_frame.get(FRAME_HEADER_LENGTH..end) else {
                return Ok(());
            };
            match kind {
                HEADERS_FRAME
                    if flags & END_HEADERS_FLAG == 0 || flags & PADDED_OR_PRIORITY_FLAGS != 0 =>
                {
                    return Err(invalid_data("the headers' frame is of an unknown form"));
                }
                CONTINUATION_FRAME => return Err(invalid_data("headers in several frames")),
                HEADERS_FRAME => {
                    let block = self.decoder.replace_authority(payload)?;
                    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
                    self.corrected_bytes.extend(&length.to_be_bytes()[1..]);
                    self.corrected_bytes.extend([kind, flags]);
                    self.corrected_bytes.extend(stream);
                    self.corrected_bytes.extend(block);
                }
                _ => self.corrected_bytes.extend(&self.incomplete_frame[..end]),
            }
            self.incomplete_frame.drain(..end);
        }
        Ok(())
    }
}

/// Decodes header blocks. It has the dynamic table of one connection (HPACK, RFC 7541).
struct HeaderDecoder(Decoder<'static>);

impl Default for HeaderDecoder {
    fn default() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MAX_HEADER_TABLE_BYTES);
        Self(decoder)
    }
}

impl HeaderDecoder {
    /// Returns a header block in which `:authority` is replaced. All headers are written as
    /// literals without indexing (RFC 7541, section 6.2.2). h2 has its own dynamic table, so the
    /// block must not depend on the client's table.
    fn replace_authority(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let mut new_block = Vec::new();
        let result = self.0.decode_with_cb(block, |name, value| {
            let value = match &*name {
                AUTHORITY_HEADER => LOCALHOST_AUTHORITY,
                _ => &*value,
            };
            if new_block.len() <= MAX_PAYLOAD_BYTES {
                new_block.push(0);
                append_string(&mut new_block, &name);
                append_string(&mut new_block, value);
            }
        });
        result.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{error:?}")))?;
        if new_block.len() > MAX_PAYLOAD_BYTES {
            Err(invalid_data("too many headers"))
        } else {
            Ok(new_block)
        }
    }
}

/// Appends a string to a header block (RFC 7541, section 5.2). The length of the string is written
/// as an integer with a 7-bit prefix (section 5.1).
fn append_string(block: &mut Vec<u8>, text: &[u8]) {
    const MAX_PREFIX: usize = 127;
    match text.len().checked_sub(MAX_PREFIX) {
        None => block.push(text.len().to_le_bytes()[0]),
        Some(mut remainder) => {
            block.push(127);
            while remainder > MAX_PREFIX {
                block.push(0x80 | remainder.to_le_bytes()[0]);
                remainder >>= 7;
            }
            block.push(remainder.to_le_bytes()[0]);
        }
    }
    block.extend(text);
}

fn invalid_data(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests;
