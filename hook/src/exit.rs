//! Declares the exit codes of `boathook`, `boathook-hook` and `boathook-runtime`. A script can find
//! out from the code why a command failed.

use std::io::{self, Write};
use std::process;

use serde::Serialize;
use serde_json::json;

/// The exit code of a program of Boathook. Scripts depend on these numbers, so a number must never
/// change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ExitCode {
    /// The command succeeded, or the container requests no device.
    Success = 0,
    /// `check` or `class check` reported an error, or an unexpected error occurred.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration or a class file is invalid.
    Config = 3,
    /// The state on stdin or the bundle's config.json is invalid.
    Spec = 4,
    /// The request was denied, or the requested devices are not available.
    Request = 5,
    /// The hook, `attach` or `detach` failed while it changed the container.
    Injection = 6,
    /// The hook exceeded its time limit ([`crate::sys::deadline::DEADLINE_SECONDS`]).
    Deadline = 7,
    /// `detach`: the container may no longer open the device, but its device nodes could not be
    /// removed from the container.
    NodeStays = 8,
    /// `doctor`: there is no such container.
    NoContainer = 10,
    /// `doctor`: the container requests no device.
    NoRequest = 11,
    /// `doctor`: the container sets a variable whose name resembles a class variable.
    SimilarVariable = 12,
    /// `doctor`: neither the runtime nor the engine calls the hook for the container.
    #[serde(rename = "no-hook")]
    HookNotConfigured = 13,
    /// `doctor`: the program that the runtime calls as the hook does not exist.
    #[serde(rename = "hook-missing")]
    HookProgramMissing = 14,
    /// `doctor`: the host has no usable device of the class.
    NoDevice = 15,
    /// `doctor`: the container requests devices that were not granted to it.
    NotGranted = 16,
    /// `doctor`: files or device nodes of the injection plan are missing in the container.
    NotInjected = 17,
    /// `doctor`: the container's cgroup denies a device.
    CgroupDenies = 18,
    /// `doctor`: the container's user may not open a device node.
    UserDenied = 19,
}

impl ExitCode {
    /// Prints this exit code and `message` as JSON on stdout, because the user gave the option
    /// `--json`. The caller has already printed the message on stderr.
    pub fn print_failure(self, message: &str) {
        let error = json!({ "message": message, "kind": self, "exit_code": self as u8 });
        let text = json!({ "error": error });
        // An error of this write is ignored, because the message is already on stderr.
        let _ = writeln!(io::stdout().lock(), "{text:#}");
    }
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> Self {
        process::ExitCode::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode::*;
    use super::json;

    #[test]
    fn the_numbers_stay_what_they_are() {
        let codes = [
            Success, Failure, Usage, Config, Spec, Request, Injection, Deadline, NodeStays,
        ];
        assert_eq!(codes.map(|code| code as u8), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let of_doctor = [
            (NoContainer, "no-container"),
            (NoRequest, "no-request"),
            (SimilarVariable, "similar-variable"),
            (HookNotConfigured, "no-hook"),
            (HookProgramMissing, "hook-missing"),
            (NoDevice, "no-device"),
            (NotGranted, "not-granted"),
            (NotInjected, "not-injected"),
            (CgroupDenies, "cgroup-denies"),
            (UserDenied, "user-denied"),
        ];
        for (number, (code, name)) in (10..).zip(of_doctor) {
            assert_eq!((code as u8, json!(code)), (number, json!(name)));
        }
    }
}
