//! Searches texts with the vector instructions that every processor of the architecture has. The
//! default functions of `memchr` first ask the processor whether it has better ones, with the
//! instruction `cpuid`, which takes microseconds on a virtual machine.

use memchr::arch::all::memchr::One;

#[cfg(target_arch = "aarch64")]
use memchr::arch::aarch64::neon as vectors;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2 as vectors;

/// Returns the offset in bytes of the first `word` in the text at or after the offset `start`.
pub(super) fn find_word(text: &str, word: &str, start: usize) -> Option<usize> {
    let text = text.get(start..)?;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(search) = vectors::packedpair::Finder::new(word.as_bytes())
        && text.len() >= search.min_haystack_len()
    {
        let offset = search.find(text.as_bytes(), word.as_bytes());
        return offset.map(|offset| start + offset);
    }
    text.find(word).map(|offset| start + offset)
}

/// Returns whether the text has a byte `byte` whose offset `is_match` accepts.
pub(super) fn has_byte(text: &str, byte: u8, is_match: impl FnMut(usize) -> bool) -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(search) = vectors::memchr::One::new(byte) {
        return search.iter(text.as_bytes()).any(is_match);
    }
    One::new(byte).iter(text.as_bytes()).any(is_match)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_by_the_standard_library() {
        for word in ["env", "\"\"\"", "extends"] {
            for length in 0..80 {
                for text in [
                    ".".repeat(length),
                    format!("{}{word}", "é".repeat(length)),
                    format!(
                        "{}{word}{}",
                        &word[..1].repeat(length),
                        ".".repeat(length % 20)
                    ),
                    format!("{word}{}{word}", " en".repeat(length)),
                ] {
                    let expected: Vec<usize> = text.match_indices(word).map(|it| it.0).collect();
                    let mut found = Vec::new();
                    while let Some(offset) = {
                        let start = found.last().map_or(0, |last| last + word.len());
                        find_word(&text, word, start)
                    } {
                        found.push(offset);
                    }
                    assert_eq!(found, expected, "{word} in {text}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_found_until_one_is_accepted() {
        let text = format!("{}\\a\\b", ".".repeat(50));
        let mut offsets = Vec::new();
        let is_found = has_byte(&text, b'\\', |offset| {
            offsets.push(offset);
            text.as_bytes()[offset + 1] == b'a'
        });
        assert!(is_found);
        assert_eq!(offsets, [50]);
        assert!(!has_byte(&text, b'x', |_| true));
    }
}
