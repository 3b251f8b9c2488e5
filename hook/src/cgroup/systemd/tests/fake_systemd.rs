//! A scripted systemd or bus for tests.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::cgroup::systemd::message::{BYTE_ORDER, MessageWriter, header_field};
use crate::cgroup::systemd::reply::{FIXED_HEADER_LEN, parse_length};

pub(super) const GUID: &[u8] = b"OK 0123456789abcdef0123456789abcdef\r\n";

/// The reaction of the server to a call.
pub(super) enum Answer {
    Return(&'static str, MessageWriter),
    Error(&'static str, &'static str),
    Bytes(Vec<u8>),
    Silence,
}

/// Starts a server that answers calls one by one and then closes the connection. The thread
/// returns the member and the body of each call.
pub(super) fn serve(
    path: &Path,
    auth: &'static [u8],
    answers: Vec<Answer>,
) -> JoinHandle<Vec<Vec<u8>>> {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut calls = Vec::new();
        let hello = read_until(&mut stream, b"\r\n");
        let uid = nix::unistd::geteuid().to_string();
        let hex_uid: String = uid.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hello, format!("\0AUTH EXTERNAL {hex_uid}\r\n").as_bytes());
        stream.write_all(auth).unwrap();
        if !auth.starts_with(b"OK") {
            return calls;
        }
        assert_eq!(read_until(&mut stream, b"\r\n"), b"BEGIN\r\n");
        for (serial, answer) in (1..).zip(answers) {
            let mut call = vec![0; FIXED_HEADER_LEN];
            if stream.read_exact(&mut call).is_err() {
                break;
            }
            call.resize(parse_length(call[..].try_into().unwrap()).unwrap(), 0);
            stream.read_exact(&mut call[FIXED_HEADER_LEN..]).unwrap();
            calls.push(call);
            // The write fails if the client has closed the connection already.
            let _ = match answer {
                Answer::Return(signature, body) => {
                    stream.write_all(&reply(2, serial, None, signature, body))
                }
                Answer::Error(name, text) => {
                    let mut body = MessageWriter::default();
                    body.write_string(text);
                    stream.write_all(&reply(3, serial, Some(name), "s", body))
                }
                Answer::Bytes(bytes) => stream.write_all(&bytes),
                Answer::Silence => io::copy(&mut stream, &mut io::sink()).map(drop),
            };
        }
        calls
    })
}

fn read_until(stream: &mut UnixStream, end: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    line
}

pub(super) fn reply(
    kind: u8,
    serial: u32,
    error: Option<&str>,
    signature: &str,
    body: MessageWriter,
) -> Vec<u8> {
    let body = body.into_bytes();
    let mut message = MessageWriter::default();
    for byte in [BYTE_ORDER, kind, 0, 1] {
        message.write_byte(byte);
    }
    message.write_u32(body.len() as u32);
    message.write_u32(77);
    message.write_struct_array(|fields| {
        fields.write_byte(header_field::REPLY_SERIAL);
        fields.write_signature("u");
        fields.write_u32(serial);
        if let Some(error) = error {
            fields.begin_struct();
            fields.write_byte(header_field::ERROR_NAME);
            fields.write_signature("s");
            fields.write_string(error);
        }
        fields.begin_struct();
        fields.write_byte(header_field::SIGNATURE);
        fields.write_signature("g");
        fields.write_signature(signature);
    });
    message.begin_struct();
    let mut bytes = message.into_bytes();
    bytes.extend(body);
    bytes
}

pub(super) fn text_property(value: &str) -> Answer {
    let mut body = MessageWriter::default();
    body.write_signature("s");
    body.write_string(value);
    Answer::Return("v", body)
}

pub(super) fn list_property(entries: &[(&str, &str)]) -> Answer {
    let mut body = MessageWriter::default();
    body.write_signature("a(ss)");
    body.write_struct_array(|list| {
        for (path, letters) in entries {
            list.begin_struct();
            list.write_string(path);
            list.write_string(letters);
        }
    });
    Answer::Return("v", body)
}

pub(super) fn done() -> Answer {
    Answer::Return("", MessageWriter::default())
}
