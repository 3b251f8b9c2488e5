//! Compares the output of programs with expected messages.

/// Fails unless the text has all of these words.
#[track_caller]
pub(crate) fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
}
