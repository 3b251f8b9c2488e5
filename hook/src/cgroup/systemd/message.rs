//! Writes D-Bus messages for method calls, in the byte order of this machine.
//!
//! The section "Message Protocol" of the D-Bus Specification defines the format. It allows any
//! order of the header fields. This module uses the order of sd-bus.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MessageWriter(Vec<u8>);

impl MessageWriter {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends zero bytes until the length of the message is a multiple of `alignment`. D-Bus
    /// requires this before a value, for example a multiple of 4 before a 32-bit number.
    fn align(&mut self, alignment: usize) {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
    }

    pub(super) fn write_byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn write_u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_ne_bytes());
    }

    pub(super) fn write_boolean(&mut self, value: bool) {
        self.write_u32(value.into());
    }

    pub(super) fn write_string(&mut self, value: &str) {
        self.write_u32(value.len() as u32);
        self.0.extend(value.bytes());
        self.write_byte(0);
    }

    pub(super) fn write_signature(&mut self, value: &str) {
        self.write_byte(value.len() as u8);
        self.0.extend(value.bytes());
        self.write_byte(0);
    }

    /// Aligns the message to 8 bytes, because D-Bus requires this before a struct. The caller then
    /// writes the fields of the struct.
    pub(super) fn begin_struct(&mut self) {
        self.align(8);
    }

    /// Writes an array of structs. First writes the length of the array in bytes. Then calls
    /// `write_elements`, which writes the elements.
    pub(super) fn write_struct_array(&mut self, write_elements: impl FnOnce(&mut Self)) {
        self.write_u32(0);
        let length_offset = self.0.len() - 4;
        // As D-Bus requires, the length of an array does not include the padding before the first
        // element.
        self.align(8);
        let elements_offset = self.0.len();
        write_elements(self);
        let length = (self.0.len() - elements_offset) as u32;
        self.0[length_offset..length_offset + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MethodCall<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) signature: &'a str,
    pub(super) body: MessageWriter,
}

/// The first byte of a D-Bus message. It is `l` if the numbers in the message are little-endian,
/// and `B` if they are big-endian.
pub(super) const BYTE_ORDER: u8 = if cfg!(target_endian = "little") {
    b'l'
} else {
    b'B'
};
pub(super) const VERSION: u8 = 1;
const METHOD_CALL: u8 = 1;
const NO_FLAGS: u8 = 0;

/// The codes of header fields (D-Bus Specification, section "Header Fields").
pub(super) mod header_field {
    pub(in super::super) const PATH: u8 = 1;
    pub(in super::super) const INTERFACE: u8 = 2;
    pub(in super::super) const MEMBER: u8 = 3;
    pub(in super::super) const ERROR_NAME: u8 = 4;
    pub(in super::super) const REPLY_SERIAL: u8 = 5;
    pub(in super::super) const DESTINATION: u8 = 6;
    pub(in super::super) const SIGNATURE: u8 = 8;
}

impl MethodCall<'_> {
    /// Returns the bytes of this call as they are sent. `serial` is the number that the reply
    /// repeats, so that it can be matched with the call. It must not be 0.
    pub(super) fn to_message(&self, serial: u32) -> Vec<u8> {
        let mut message = MessageWriter::default();
        for byte in [BYTE_ORDER, METHOD_CALL, NO_FLAGS, VERSION] {
            message.write_byte(byte);
        }
        message.write_u32(self.body.0.len() as u32);
        message.write_u32(serial);
        message.write_struct_array(|fields| {
            for (code, kind, value) in [
                (header_field::PATH, "o", self.path),
                (header_field::MEMBER, "s", self.member),
                (header_field::INTERFACE, "s", self.interface),
                (header_field::DESTINATION, "s", self.destination),
            ] {
                fields.begin_struct();
                fields.write_byte(code);
                fields.write_signature(kind);
                fields.write_string(value);
            }
            if !self.signature.is_empty() {
                fields.begin_struct();
                fields.write_byte(header_field::SIGNATURE);
                fields.write_signature("g");
                fields.write_signature(self.signature);
            }
        });
        message.align(8);
        message.0.extend_from_slice(&self.body.0);
        message.into_bytes()
    }
}
