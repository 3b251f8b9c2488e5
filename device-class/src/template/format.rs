//! Formats for attributes in templates, such as `03` in `{busnum:03}`.

use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    Plain,
    /// The format `03`: leading zeros are added up to this width, so that `7` becomes `007`.
    Padded(usize),
    /// The format `.3`: only this number of characters is kept, from the beginning of the value.
    Truncated(usize),
    /// The format `016x`: a decimal number is written in hexadecimal, with leading zeros up to this
    /// width.
    Hexadecimal(usize),
    Lowercase,
    /// The format `label`: the value becomes a valid part of a resource name. It is changed to
    /// lower case. Characters other than letters and digits are removed at both ends, and become
    /// one dash between words: `Model X_1` becomes `model-x-1`.
    Label,
    /// The format `base64`: hexadecimal bytes are written in base64 with the alphabet for URLs,
    /// without padding (RFC 4648, section 5).
    Base64,
}

impl Format {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parse_width =
            |digits: &str| digits.parse().ok().filter(|width| (1..=16).contains(width));
        match text {
            "lower" => Some(Format::Lowercase),
            "label" => Some(Format::Label),
            "base64" => Some(Format::Base64),
            "x" => Some(Format::Hexadecimal(1)),
            _ => match (text.strip_prefix('.'), text.strip_suffix('x')) {
                (Some(digits), _) => parse_width(digits).map(Format::Truncated),
                (_, Some(digits)) => parse_width(digits).map(Format::Hexadecimal),
                _ => parse_width(text).map(Format::Padded),
            },
        }
    }

    /// Formats a value. Returns `None` if the format does not accept the value. For example, `016x`
    /// accepts only decimal numbers.
    pub(super) fn apply(self, value: &str) -> Option<Cow<'_, str>> {
        Some(match self {
            Format::Plain => value.into(),
            Format::Padded(width) => format!("{value:0>width$}").into(),
            Format::Truncated(count) => match value.char_indices().nth(count) {
                Some((end, _)) => value[..end].into(),
                None => value.into(),
            },
            Format::Hexadecimal(width) => {
                let number: u64 = value.parse().ok()?;
                format!("{number:0width$x}").into()
            }
            Format::Lowercase => value.to_ascii_lowercase().into(),
            Format::Label => {
                let words = value.split(|c: char| !c.is_ascii_alphanumeric());
                let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
                words.join("-").to_ascii_lowercase().into()
            }
            Format::Base64 => encode_base64(&decode_hexadecimal(value)?).into(),
        })
    }
}

/// Decodes hexadecimal digits to bytes. Returns `None` if the number of digits is odd, or if there
/// is any other character.
pub(crate) fn decode_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit_value = |c: u8| char::from(c).to_digit(16);
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(digit_value(pair[0])? << 4 | digit_value(pair[1])?).ok())
        .collect()
}

fn encode_base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_usize, |group, byte| group << 8 | usize::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        let sextets = [18, 12, 6, 0].map(|shift| ALPHABET[group >> shift & 63]);
        text.extend(sextets[..=chunk.len()].iter().map(|c| char::from(*c)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_written_in_the_format() {
        for (format, value, wanted) in [
            ("03", "7", Some("007")),
            ("3", "1234", Some("1234")),
            (".3", "abcdef", Some("abc")),
            (".3", "äöüß", Some("äöü")),
            (".3", "a", Some("a")),
            ("016x", "7450931232", Some("00000001bc1c3020")),
            ("x", "255", Some("ff")),
            ("x", "ff", None),
            ("lower", "CPX_NPS4", Some("cpx_nps4")),
            (
                "label",
                "NVIDIA A100-SXM4-80GB",
                Some("nvidia-a100-sxm4-80gb"),
            ),
            ("label", " (X)  1/2 ", Some("x-1-2")),
            // RFC 4648, section 10, in hexadecimal.
            ("base64", "666f6f626172", Some("Zm9vYmFy")),
            ("base64", "666f6f6261", Some("Zm9vYmE")),
            ("base64", "666f6f62", Some("Zm9vYg")),
            ("base64", "fbff", Some("-_8")),
            ("base64", "fbf", None),
            ("base64", "äö", None),
        ] {
            let format = Format::parse(format).unwrap();
            assert_eq!(format.apply(value).as_deref(), wanted, "{format:?} {value}");
        }
        for text in ["", "0", "17", "wide", ".", ".x", "17x", "-1"] {
            assert_eq!(Format::parse(text), None, "{text}");
        }
    }
}
