//! Reads a file that the kernel makes up, and never more than was expected.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::CgroupError;

/// The whole of `path`, which must not be longer than `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, CgroupError> {
    let fail = |source| CgroupError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(fail)?;
    let mut content = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut content)
        .map_err(fail)?;
    if content.len() as u64 > limit {
        return Err(CgroupError::TooLong {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_up_to_the_limit_and_not_a_byte_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cgroup");
        std::fs::write(&path, "0::/a").unwrap();

        assert_eq!(read(&path, 5).unwrap(), b"0::/a");
        assert!(matches!(
            read(&path, 4),
            Err(CgroupError::TooLong { limit: 4, .. })
        ));
    }

    #[test]
    fn names_the_file_that_is_missing() {
        let error = read(Path::new("/nonexistent/cgroup"), 1).unwrap_err();
        assert_eq!(
            crate::log::chain(&error),
            "cannot read /nonexistent/cgroup: No such file or directory (os error 2)"
        );
    }
}
