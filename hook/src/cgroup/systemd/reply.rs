//! Parses the messages that systemd sends over D-Bus, such as replies to method calls.
//!
//! The messages are not trusted. Every length in a message is compared with the size of the
//! message. An invalid message is the error [`BusError::InvalidMessage`].

use super::error::BusError::{self, InvalidMessage};
use super::message::{BYTE_ORDER, VERSION, header_field};

/// The length in bytes of the fixed part of a D-Bus header. This part has the same fields in every
/// message, and contains the lengths of the other parts.
pub(super) const FIXED_HEADER_LEN: usize = 16;
/// The maximum length of a message in bytes. For comparison, `DeviceAllow=` with a thousand devices
/// needs about 50 KiB.
pub(super) const MAX_MESSAGE_LEN: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageContent {
    Return {
        signature: String,
        body: Vec<u8>,
    },
    Error {
        name: String,
        message: String,
    },
    /// A message that is neither a result nor an error, such as a signal.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The serial number of the call to which this message replies. It is 0 if the message is not a
    /// reply.
    pub(super) reply_serial: u32,
    pub(super) content: MessageContent,
}

/// Returns the length in bytes of the whole message that begins with `fixed_header`.
pub(super) fn parse_length(fixed_header: &[u8; FIXED_HEADER_LEN]) -> Result<usize, BusError> {
    let mut reader = MessageReader::new(fixed_header);
    if reader.read_byte()? != BYTE_ORDER {
        return Err(InvalidMessage);
    }
    reader.take_bytes(2)?;
    if reader.read_byte()? != VERSION {
        return Err(InvalidMessage);
    }
    let body_length = reader.read_u32()? as usize;
    reader.read_u32()?;
    let fields_length = reader.read_u32()? as usize;
    // Both lengths are limited before they are added, so that the sum cannot overflow.
    if body_length > MAX_MESSAGE_LEN || fields_length > MAX_MESSAGE_LEN {
        return Err(InvalidMessage);
    }
    let length = (FIXED_HEADER_LEN + fields_length).next_multiple_of(8) + body_length;
    if length > MAX_MESSAGE_LEN {
        return Err(InvalidMessage);
    }
    Ok(length)
}

impl Message {
    /// Parses a whole message. `bytes` has the length that [`parse_length`] returned for the
    /// header.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, BusError> {
        let mut reader = MessageReader::new(bytes);
        reader.take_bytes(1)?;
        let message_type = reader.read_byte()?;
        reader.take_bytes(10)?;

        let mut reply_serial = 0;
        let mut error_name = None;
        let mut signature = String::new();
        let end = reader.read_array_end(8)?;
        while reader.offset < end {
            reader.align(8)?;
            let code = reader.read_byte()?;
            match (code, reader.read_signature()?) {
                (header_field::REPLY_SERIAL, "u") => reply_serial = reader.read_u32()?,
                (header_field::ERROR_NAME, "s") => {
                    error_name = Some(reader.read_string()?.to_owned())
                }
                (header_field::SIGNATURE, "g") => signature = reader.read_signature()?.to_owned(),
                (_, "s" | "o") => drop(reader.read_string()?),
                (_, "g") => drop(reader.read_signature()?),
                (_, "u") => drop(reader.read_u32()?),
                _ => return Err(InvalidMessage),
            }
        }
        if reader.offset != end {
            return Err(InvalidMessage);
        }
        reader.align(8)?;
        let body = reader.remaining_bytes();

        let content = match (message_type, error_name) {
            (2, _) => MessageContent::Return {
                signature,
                body: body.to_vec(),
            },
            (3, Some(name)) => MessageContent::Error {
                name,
                message: if signature.starts_with('s') {
                    MessageReader::new(body).read_string()?.to_owned()
                } else {
                    String::new()
                },
            },
            (3, None) => return Err(InvalidMessage),
            _ => MessageContent::Other,
        };
        Ok(Self {
            reply_serial,
            content,
        })
    }
}

/// Reads one value after the other in the wire format of D-Bus. A read fails if the value would end
/// after the end of the message.
pub(super) struct MessageReader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> MessageReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], BusError> {
        let end = self.offset.checked_add(count).ok_or(InvalidMessage)?;
        let bytes = self.bytes.get(self.offset..end).ok_or(InvalidMessage)?;
        self.offset = end;
        Ok(bytes)
    }

    fn remaining_bytes(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    fn align(&mut self, alignment: usize) -> Result<(), BusError> {
        let padding = self.offset.next_multiple_of(alignment) - self.offset;
        self.take_bytes(padding).map(drop)
    }

    fn read_byte(&mut self) -> Result<u8, BusError> {
        Ok(self.take_bytes(1)?[0])
    }

    fn read_u32(&mut self) -> Result<u32, BusError> {
        self.align(4)?;
        let bytes = self.take_bytes(4)?.try_into().map_err(|_| InvalidMessage)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(super) fn read_string(&mut self) -> Result<&'a str, BusError> {
        let length = self.read_u32()? as usize;
        self.read_text(length)
    }

    pub(super) fn read_signature(&mut self) -> Result<&'a str, BusError> {
        let length = self.read_byte()?.into();
        self.read_text(length)
    }

    fn read_text(&mut self, length: usize) -> Result<&'a str, BusError> {
        let text = str::from_utf8(self.take_bytes(length)?).map_err(|_| InvalidMessage)?;
        match self.read_byte()? {
            0 => Ok(text),
            _ => Err(InvalidMessage),
        }
    }

    /// Reads the length of an array, and returns the offset at which the array ends. D-Bus aligns
    /// the first element to `alignment` bytes.
    fn read_array_end(&mut self, alignment: usize) -> Result<usize, BusError> {
        let length = self.read_u32()? as usize;
        self.align(alignment)?;
        let end = self.offset.checked_add(length).ok_or(InvalidMessage)?;
        if end <= self.bytes.len() {
            Ok(end)
        } else {
            Err(InvalidMessage)
        }
    }

    /// Reads an array of pairs of strings. The D-Bus signature of such an array is `a(ss)`.
    pub(super) fn read_string_pairs(&mut self) -> Result<Vec<(String, String)>, BusError> {
        let end = self.read_array_end(8)?;
        let mut pairs = Vec::new();
        while self.offset < end {
            self.align(8)?;
            let pair = (
                self.read_string()?.to_owned(),
                self.read_string()?.to_owned(),
            );
            pairs.push(pair);
        }
        Ok(pairs)
    }
}
