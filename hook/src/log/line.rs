//! A line of the node's log.

/// Returns whether a line names the container. The id is compared with whole words, because the
/// id of another container may contain the same letters.
pub(crate) fn is_about(line: &str, id: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || "_.-/".contains(c)));
    words.any(|word| word == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_the_container_that_it_names() {
        let line = "2026-11-22 boathook: container c1: env X=9: no device";
        assert!(is_about(line, "c1"));
        assert!(!is_about(line, "c"));
        assert!(!is_about("boathook: container 4fc1aa: no device", "c1"));
    }
}
