//! Ranges of device indexes in requests, such as `0-3`.

/// A range of device indexes in a request, written as `FIRST-LAST`. `0-3` means the indexes 0, 1, 2
/// and 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRange {
    pub first: u32,
    pub last: u32,
}

/// The reason why a text of digits and dashes is not a valid range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexRangeError {
    /// The text does not consist of exactly two numbers, or one of the numbers does not fit into a
    /// `u32`.
    Malformed,
    Backwards {
        first: u32,
        last: u32,
    },
}

impl IndexRange {
    /// Parses a text that has at least one dash, and otherwise only digits, dashes and blanks.
    /// Returns `None` for any other text, because it may be the name of a device.
    pub fn parse(text: &str) -> Option<Result<Self, IndexRangeError>> {
        let is_range_char = |c: char| matches!(c, '0'..='9' | '-' | ' ');
        let (first, last) = text
            .split_once('-')
            .filter(|_| text.chars().all(is_range_char))?;
        let numbers = (first.trim_end().parse(), last.trim_start().parse());
        Some(match numbers {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            (Ok(first), Ok(last)) => Err(IndexRangeError::Backwards { first, last }),
            _ => Err(IndexRangeError::Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_numbers_in_their_order() {
        let range = |first, last| Some(Ok(IndexRange { first, last }));
        let malformed = Some(Err(IndexRangeError::Malformed));
        for (text, parsed) in [
            ("0-3", range(0, 3)),
            ("2 - 2", range(2, 2)),
            (
                "3-0",
                Some(Err(IndexRangeError::Backwards { first: 3, last: 0 })),
            ),
            ("0-", malformed),
            ("-", malformed),
            ("0-1-2", malformed),
            ("0-99999999999", malformed),
            ("0", None),
            ("1-2.3", None),
            ("npu-0", None),
            ("", None),
        ] {
            assert_eq!(IndexRange::parse(text), parsed, "{text:?}");
        }
    }
}
