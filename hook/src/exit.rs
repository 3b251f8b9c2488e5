//! Exit codes, by which a caller distinguishes failures.

use std::process;

/// The result of the program. The numbers are part of its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Success, also if nothing was requested.
    Success = 0,
    /// `check` or `class check` found an error, or an unexpected error.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration or a class file is wrong.
    Config = 3,
    /// The State on stdin or the bundle's config.json is invalid.
    Spec = 4,
    /// The request was denied or cannot be satisfied.
    Request = 5,
    /// The devices could not be put into the container.
    Injection = 6,
    /// The work took too long.
    Deadline = 7,
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> Self {
        process::ExitCode::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode::*;

    #[test]
    fn the_numbers_stay_what_they_are() {
        let codes = [
            Success, Failure, Usage, Config, Spec, Request, Injection, Deadline,
        ];
        assert_eq!(codes.map(|code| code as u8), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
