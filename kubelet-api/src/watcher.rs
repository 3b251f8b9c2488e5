//! Reads the connections of the kubelet's plugin watcher.
//!
//! Its client (grpc-go, dialed with a path: pkg/kubelet/pluginmanager/operationexecutor) sends the
//! socket's path as `:authority`, with `%2F` for `/`. h2 refuses such a request, since a host has
//! no percent sign there. Therefore the value is replaced before h2 reads it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// The length of the preface with which a client begins (RFC 9113, section 3.4).
const PREFACE: usize = 24;
/// The length of a frame's header, which has the frame's length, type, flags and stream
/// (section 4.1).
const FRAME_HEADER: usize = 9;
/// The maximum length of a frame, unless the server sets another one (section 6.5.2,
/// SETTINGS_MAX_FRAME_SIZE).
const MAX_FRAME: usize = 1 << 14;
/// The type of frames with headers, and the flag of one that has them all (section 6.2).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// Flags of padding and priority, which precede the headers in a frame.
const PADDED_OR_PRIORITY: u8 = 0x28;
/// The maximum size of the dynamic table that the client may use (section 6.5.2).
const MAX_TABLE: usize = 4096;

const AUTHORITY: &[u8] = b":authority";
/// The value that the kubelet's other clients send.
const LOCALHOST: &[u8] = b"localhost";

/// A connection from which each request is read with `localhost` as its authority.
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

/// The bytes of a client, divided into frames.
#[derive(Default)]
struct Requests {
    has_begun: bool,
    /// The bytes of a frame that is not complete yet.
    incomplete: Vec<u8>,
    /// The bytes that can be read.
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
        if !self.has_begun {
            if self.incomplete.len() < PREFACE {
                return Ok(());
            }
            self.has_begun = true;
            self.readable.extend(self.incomplete.drain(..PREFACE));
        }
        while let [high, middle, low, kind, flags, stream @ ..] = self.incomplete.as_slice()
            && let Some(stream) = stream.first_chunk::<4>()
        {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if length > MAX_FRAME {
                return Err(invalid("a frame is too long"));
            }
            let (kind, flags, stream) = (*kind, *flags, *stream);
            let end = FRAME_HEADER + length;
            let Some(payload) = self.incomplete.get(FRAME_HEADER..end) else {
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

/// Blocks of headers (RFC 7541).
struct Headers(Decoder<'static>);

impl Default for Headers {
    fn default() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MAX_TABLE);
        Self(decoder)
    }
}

impl Headers {
    /// Returns a block of headers with the authority replaced. All headers are written as
    /// literals (section 6.2.2), so that the block does not depend on earlier ones.
    fn replace_authority(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let mut replaced = Vec::new();
        let decoded = self.0.decode_with_cb(block, |name, value| {
            let value = match &*name {
                AUTHORITY => LOCALHOST,
                _ => &*value,
            };
            if replaced.len() <= MAX_FRAME {
                replaced.push(0);
                add_string(&mut replaced, &name);
                add_string(&mut replaced, value);
            }
        });
        decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{error:?}")))?;
        if replaced.len() > MAX_FRAME {
            Err(invalid("too many headers"))
        } else {
            Ok(replaced)
        }
    }
}

/// Adds a string (section 5.2). Its length is an integer with a prefix of 7 bits (section
/// 5.1).
fn add_string(block: &mut Vec<u8>, text: &[u8]) {
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
