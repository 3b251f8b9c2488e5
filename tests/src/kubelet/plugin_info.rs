//! The call GetInfo as the kubelet's plugin watcher makes it, written as raw HTTP/2 frames. The
//! kubelet's client (grpc-go, dialed with a path) sends the path of the socket as `:authority`,
//! with `%2F` for `/`. tonic cannot send this, because `Authority` of the crate `http` refuses it.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use daemon::kubelet_api::pluginregistration::PluginInfo;
use prost::Message as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Types and flags of HTTP/2 frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Calls GetInfo of the plugin at `socket`.
pub(super) async fn plugin_info(socket: &Path) -> Result<PluginInfo> {
    let mut stream = UnixStream::connect(socket).await?;
    let authority = socket.display().to_string().replace('/', "%2F");
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/pluginregistration.Registration/GetInfo"),
        (":authority", &authority),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.79.1"),
        ("te", "trailers"),
        ("grpc-timeout", "999839u"),
    ];
    let mut call = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    add_frame(&mut call, SETTINGS, 0, 0, &[]);
    add_frame(&mut call, HEADERS, END_HEADERS, 1, &block(&headers));
    // An empty gRPC message: one byte for "not compressed" and four bytes for its length.
    add_frame(&mut call, DATA, END_STREAM, 1, &[0; 5]);
    stream.write_all(&call).await?;

    let mut message = Vec::new();
    loop {
        let mut header = [0; 9];
        let read = stream.read_exact(&mut header).await;
        read.context("the plugin closed the connection")?;
        let [high, middle, low, kind, flags, ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut payload).await?;
        match kind {
            DATA => message.extend(payload),
            RST_STREAM | GOAWAY => bail!("the plugin refused the call: {payload:?}"),
            HEADERS if flags & END_STREAM != 0 => break,
            _ => {}
        }
    }
    ensure!(message.len() >= 5, "the plugin answered {message:?}");
    Ok(PluginInfo::decode(&message[5..])?)
}

fn add_frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
    let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
    bytes.extend([0, length[0], length[1], kind, flags, 0, 0, 0, stream]);
    bytes.extend(payload);
}

/// Encodes headers by HPACK as literal fields with incremental indexing (RFC 7541, section 6.2.1).
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0x40);
        for text in [name, value] {
            block.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|n| *n < 127)
                    .expect("short"),
            );
            block.extend(text.as_bytes());
        }
    }
    block
}
