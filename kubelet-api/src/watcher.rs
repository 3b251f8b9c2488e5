//! Corrects the requests of the kubelet's plugin watcher, so that the HTTP/2 library accepts them.
//!
//! The kubelet's client (grpc-go, called with a path in
//! pkg/kubelet/pluginmanager/operationexecutor) sends the socket's path as the header `:authority`,
//! with `%2F` for `/`. The library h2 refuses such a request, because the name of a host has no
//! percent sign. Therefore this module replaces the value before h2 reads it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// The length in bytes of the preface with which a client begins (RFC 9113, section 3.4).
const PREFACE_LENGTH: usize = 24;
/// The length in bytes of a frame's header: its length, type, flags and stream (RFC 9113, section
/// 4.1).
const FRAME_HEADER_LENGTH: usize = 9;
/// The maximum length in bytes of a frame's payload. It is the default of SETTINGS_MAX_FRAME_SIZE,
/// which the server does not change (RFC 9113, section 6.5.2).
const MAX_PAYLOAD: usize = 1 << 14;
/// The type of a frame with the headers of a request (RFC 9113, section 6.2).
const HEADERS: u8 = 1;
/// The type of a frame with headers that did not fit in the HEADERS frame.
const CONTINUATION: u8 = 9;
/// The flag of a HEADERS frame without continuations.
const END_HEADERS: u8 = 4;
/// The flags PADDED and PRIORITY of a HEADERS frame. With them, other fields precede the headers.
const PADDED_OR_PRIORITY: u8 = 0x28;
/// The maximum size in bytes of the dynamic table of headers that the client may use. It is the
/// default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113, section 6.5.2).
const MAX_TABLE_SIZE: usize = 4096;

const AUTHORITY: &[u8] = b":authority";
/// The authority that the kubelet's other clients send.
const LOCALHOST: &[u8] = b"localhost";

/// A connection of the plugin watcher. Each request that is read from it has the authority
/// `localhost`.
#[derive(Debug)]
pub struct WatcherStream<S> {
    stream: S,
    requests: Requests,
}

impl<S> WatcherStream<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            requests: Requests::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatcherStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.requests.readable.is_empty() {
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.requests.add(read.filled())?;
        }
        let readable = &mut self.requests.readable;
        let length = readable.len().min(buf.remaining());
        buf.put_slice(&readable[..length]);
        readable.drain(..length);
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

/// The bytes that a client has sent, divided into frames, with the authority of each request
/// replaced.
#[derive(Default)]
struct Requests {
    /// Whether the client's preface is complete.
    has_preface: bool,
    /// The bytes of a frame that has not arrived completely.
    incomplete: Vec<u8>,
    /// The corrected bytes that the caller can read.
    readable: Vec<u8>,
    headers: Headers,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.incomplete.extend(bytes);
        if !self.has_preface {
            if self.incomplete.len() < PREFACE_LENGTH {
                return Ok(());
            }
            self.has_preface = true;
            self.readable
                .extend(self.incomplete.drain(..PREFACE_LENGTH));
        }
        while let [high, middle, low, kind, flags, stream @ ..] = self.incomplete.as_slice()
            && let Some(stream) = stream.first_chunk::<4>()
        {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if length > MAX_PAYLOAD {
                return Err(invalid("a frame is too long"));
            }
            let (kind, flags, stream) = (*kind, *flags, *stream);
            let end = FRAME_HEADER_LENGTH + length;
            let Some(payload) = self.incomplete.get(FRAME_HEADER_LENGTH..end) else {
                return Ok(());
            };
            match kind {
                HEADERS if flags & END_HEADERS == 0 || flags & PADDED_OR_PRIORITY != 0 => {
                    return Err(invalid("the headers' frame is of an unknown form"));
                }
                CONTINUATION => return Err(invalid("headers in several frames")),
                HEADERS => {
                    let block = self.headers.replace_authority(payload)?;
                    let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
                    self.readable.extend(&length.to_be_bytes()[1..]);
                    self.readable.extend([kind, flags]);
                    self.readable.extend(stream);
                    self.readable.extend(block);
                }
                _ => self.readable.extend(&self.incomplete[..end]),
            }
            self.incomplete.drain(..end);
        }
        Ok(())
    }
}

/// The decoder of header blocks, with the dynamic table of one connection (HPACK, RFC 7541).
struct Headers(Decoder<'static>);

impl Default for Headers {
    fn default() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MAX_TABLE_SIZE);
        Self(decoder)
    }
}

impl Headers {
    /// Returns a header block in which the authority is replaced. All headers are written as literals
    /// that are not indexed (RFC 7541, section 6.2.2), so that the block does not depend on the dynamic
    /// table, which h2 does not share.
    fn replace_authority(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let mut replaced = Vec::new();
        let decoded = self.0.decode_with_cb(block, |name, value| {
            let value = match &*name {
                AUTHORITY => LOCALHOST,
                _ => &*value,
            };
            if replaced.len() <= MAX_PAYLOAD {
                replaced.push(0);
                append_string(&mut replaced, &name);
                append_string(&mut replaced, value);
            }
        });
        decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{error:?}")))?;
        if replaced.len() > MAX_PAYLOAD {
            Err(invalid("too many headers"))
        } else {
            Ok(replaced)
        }
    }
}

/// Appends a string to a header block (RFC 7541, section 5.2). The length of the string is an integer
/// with a prefix of 7 bits (section 5.1).
fn append_string(block: &mut Vec<u8>, text: &[u8]) {
    const MAX: usize = 127;
    match text.len().checked_sub(MAX) {
        None => block.push(text.len().to_le_bytes()[0]),
        Some(mut left) => {
            block.push(127);
            while left > MAX {
                block.push(0x80 | left.to_le_bytes()[0]);
                left >>= 7;
            }
            block.push(left.to_le_bytes()[0]);
        }
    }
    block.extend(text);
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests;
