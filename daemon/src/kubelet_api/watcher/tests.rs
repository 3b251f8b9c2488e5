use loona_hpack::Encoder;

use super::*;

const PREFACE: &[u8; PREFACE_LENGTH] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;

type Field<'a> = (&'a [u8], &'a [u8]);

/// The headers of a request as the kubelet sends them.
const SENT: [Field<'_>; 3] = [
    (b":method", b"POST"),
    (
        AUTHORITY_HEADER,
        b"%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fboathook.sock",
    ),
    (b"te", b"trailers"),
];
/// The headers of the same request as h2 reads them.
const READ: [Field<'_>; 3] = [SENT[0], (AUTHORITY_HEADER, LOCALHOST_AUTHORITY), SENT[2]];

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 1]);
    frame.extend(payload);
    frame
}

/// Returns the connection preface and two calls with their messages. The header block of the
/// second call refers to entries that the first call put into the dynamic table.
fn encode_two_calls() -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut bytes = PREFACE.to_vec();
    for _ in 0..2 {
        let block = encoder.encode(SENT);
        bytes.extend(frame(HEADERS_FRAME, END_HEADERS_FLAG, &block));
        bytes.extend(frame(DATA, 1, b"a message"));
    }
    bytes
}

/// Returns the fields of each header block. All other frames must be data frames.
fn decode_headers(mut bytes: &[u8]) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    bytes = bytes.strip_prefix(PREFACE).unwrap();
    let mut decoder = Decoder::new();
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let payload = &bytes[FRAME_HEADER_LENGTH..FRAME_HEADER_LENGTH + length];
        match bytes[3] {
            HEADERS_FRAME => blocks.push(decoder.decode(payload).unwrap()),
            _ => assert_eq!(payload, b"a message"),
        }
        bytes = &bytes[FRAME_HEADER_LENGTH + length..];
    }
    blocks
}

#[test]
fn the_authority_is_replaced_in_pieces_of_any_size() {
    let sent = encode_two_calls();
    for size in [1, 2, 9, 23, 24, 25, 64, sent.len()] {
        let mut requests = RequestBytes::default();
        for bytes in sent.chunks(size) {
            requests.process_bytes(bytes).unwrap();
        }
        let expected = READ.map(|(name, value)| (name.to_vec(), value.to_vec()));
        let headers = decode_headers(&requests.corrected_bytes);
        assert_eq!(headers, [expected.clone(), expected], "{size}");
    }
}

#[test]
fn long_values_keep_their_length() {
    for length in [0, 126, 127, 128, 254, 255, 4_000, 16_000] {
        let value = vec![b'v'; length];
        let mut headers = HeaderDecoder::default();
        let block = Encoder::new().encode([(b"name".as_slice(), value.as_slice())]);
        let replaced = headers.replace_authority(&block).unwrap();
        let fields = Decoder::new().decode(&replaced).unwrap();
        assert_eq!(fields, [(b"name".to_vec(), value)]);
    }
}

#[test]
fn unknown_forms_of_headers_and_long_frames_end_the_connection() {
    let block = Encoder::new().encode(SENT);
    let bomb = {
        // The block has one field of 4,000 bytes and 1,000 references to it, each of one byte.
        let mut block = Encoder::new().encode([(b"n".as_slice(), [b'v'; 4_000].as_slice())]);
        block.extend([0xbe; 1_000]);
        block
    };
    let headers = |flags, payload| frame(HEADERS_FRAME, END_HEADERS_FLAG | flags, payload);
    for (name, frame) in [
        ("too long", vec![0, 0x40, 1, DATA, 0, 0, 0, 0, 1]),
        ("padded", headers(8, &block)),
        ("with a priority", headers(0x20, &block)),
        ("not complete", frame(HEADERS_FRAME, 0, &block)),
        (
            "continued",
            frame(CONTINUATION_FRAME, END_HEADERS_FLAG, &block),
        ),
        ("cut", headers(0, &block[..block.len() - 1])),
        ("an index of nothing", headers(0, &[0xff, 0xff, 0x7f])),
        ("a bomb", headers(0, &bomb)),
    ] {
        let mut requests = RequestBytes::default();
        requests.process_bytes(PREFACE).unwrap();
        let error = requests.process_bytes(&frame).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{name}");
    }
}
