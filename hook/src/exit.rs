//! Exit codes: how a caller tells apart what went wrong.

use std::process;

/// How the program ended. The numbers are part of its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// All is well, or nothing was asked for.
    Success = 0,
    /// `check` or `class check` found an error, or something unforeseen failed.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration or a class file is wrong.
    Config = 3,
    /// The State on stdin or the bundle's config.json can't be used.
    Spec = 4,
    /// The container asks for what it can't have.
    Request = 5,
    /// The devices could not be put into the container.
    Injection = 6,
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
        let codes = [Success, Failure, Usage, Config, Spec, Request, Injection];
        assert_eq!(codes.map(|code| code as u8), [0, 1, 2, 3, 4, 5, 6]);
    }
}
