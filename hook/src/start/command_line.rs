//! Parses the command line of `boathook-hook`. An unknown argument is an error, because a hook that
//! ignores an argument could inject something that was not configured.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use device_class::config::LogLevel;

use crate::oci::CdiGrant;
use crate::oci::hooks::MASKED_PATH_OPTION;
use crate::planner::Caller;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandLine {
    /// A runtime calls the hook, because a container starts.
    Start(StartOptions),
    Help,
    Version,
}

/// The options that a runtime gives to the hook.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// The path of the configuration file. `None` means `/etc/boathook/config.toml`, which may be
    /// absent.
    pub config_path: Option<PathBuf>,
    /// The time in seconds after which the hook fails, by default 10. Only tests set this value.
    pub deadline_seconds: Option<NonZeroU32>,
    /// An additional directory that contains class files. `boathook class test` sets it.
    pub additional_class_dir: Option<PathBuf>,
    pub log_level: Option<LogLevel>,
    /// True if the command line has the option `--json`. Then the hook prints an error as JSON.
    pub is_json: bool,
    /// The paths that the hook masks. The runtime does not mask them, because `boathook-runtime`
    /// removed them from `linux.maskedPaths` in config.json.
    pub masked_paths: Vec<PathBuf>,
    pub caller: Caller,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum UsageError {
    #[error("unexpected argument `{0}`")]
    UnexpectedArgument(String),
    #[error("there is no stage `{0}`; the commands for administrators are those of `boathook`")]
    UnknownStage(String),
    #[error("neither `prestart` nor `create-runtime` is given")]
    MissingStage,
    #[error("`{0}` needs a value")]
    MissingValue(&'static str),
    #[error("`{0}` takes no value")]
    UnexpectedValue(&'static str),
    #[error("`{0}` is given twice")]
    RepeatedOption(&'static str),
    #[error("`--verbose` and `--log-level` exclude each other")]
    VerbosityConflict,
    #[error("invalid value `{value}` for `{option}`: {problem}")]
    InvalidValue {
        option: &'static str,
        value: String,
        problem: String,
    },
}

impl CommandLine {
    /// Parses the arguments of the process. They do not include the program name.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Self, UsageError> {
        let mut options = StartOptions::default();
        let (mut grant, mut stage, mut is_verbose) = (None, None, false);
        let mut reader = ArgumentIterator {
            arguments: arguments.iter(),
            value_after_equals: None,
        };
        while let Some(argument) = reader.next() {
            match argument.to_str() {
                Some("--config") => {
                    let config_path = reader.read_value("--config")?;
                    set_option_once(&mut options.config_path, "--config", config_path.into())?;
                }
                Some("--also-classes") => {
                    let directory = reader.read_value("--also-classes")?;
                    set_option_once(
                        &mut options.additional_class_dir,
                        "--also-classes",
                        directory.into(),
                    )?;
                }
                Some("--deadline") => {
                    let seconds = reader.parse_value("--deadline", str::parse)?;
                    set_option_once(&mut options.deadline_seconds, "--deadline", seconds)?;
                }
                Some("--log-level") => {
                    let level = reader.parse_value("--log-level", parse_log_level)?;
                    set_option_once(&mut options.log_level, "--log-level", level)?;
                }
                Some("--cdi") => {
                    let device = reader.parse_value("--cdi", CdiGrant::parse)?;
                    set_option_once(&mut grant, "--cdi", device)?;
                }
                Some(MASKED_PATH_OPTION) => {
                    let path = reader.parse_value(MASKED_PATH_OPTION, parse_masked_path)?;
                    options.masked_paths.push(path);
                }
                Some("-v" | "--verbose") => reader.set_flag(&mut is_verbose, "--verbose")?,
                Some("--json") => reader.set_flag(&mut options.is_json, "--json")?,
                Some("-h" | "--help") => {
                    reader.check_no_value("--help")?;
                    return Ok(Self::Help);
                }
                Some("-V" | "--version") => {
                    reader.check_no_value("--version")?;
                    return Ok(Self::Version);
                }
                Some("prestart" | "create-runtime") if stage.is_none() => stage = Some(argument),
                _ if stage.is_some() || argument.as_bytes().starts_with(b"-") => {
                    return Err(UsageError::UnexpectedArgument(
                        argument.to_string_lossy().into(),
                    ));
                }
                _ => return Err(UsageError::UnknownStage(argument.to_string_lossy().into())),
            }
        }
        if stage.is_none() {
            return Err(UsageError::MissingStage);
        }
        if is_verbose {
            set_option_once(&mut options.log_level, "", LogLevel::Info)
                .map_err(|_| UsageError::VerbosityConflict)?;
        }
        options.caller = grant.map_or(Caller::Engine, Caller::Cdi);
        Ok(Self::Start(options))
    }
}

/// Sets the value of an option. Fails if the option already has a value, because the command line
/// contains it twice.
fn set_option_once<T>(
    option_value: &mut Option<T>,
    option: &'static str,
    value: T,
) -> Result<(), UsageError> {
    if option_value.is_some() {
        return Err(UsageError::RepeatedOption(option));
    }
    *option_value = Some(value);
    Ok(())
}

fn parse_masked_path(text: &str) -> Result<PathBuf, &'static str> {
    if !text.starts_with('/') {
        return Err("it is not an absolute path");
    }
    Ok(text.into())
}

pub fn parse_log_level(text: &str) -> Result<LogLevel, &'static str> {
    match text {
        "error" => Ok(LogLevel::Error),
        "warning" => Ok(LogLevel::Warning),
        "info" => Ok(LogLevel::Info),
        _ => Err("write error, warning or info"),
    }
}

/// An iterator over the arguments of a command line. It splits `--option=value` into the option and
/// its value.
struct ArgumentIterator<'a> {
    arguments: slice::Iter<'a, OsString>,
    /// The text after `=` in the last argument that `next` returned. It is the value of this
    /// option.
    value_after_equals: Option<&'a OsStr>,
}

impl<'a> ArgumentIterator<'a> {
    /// Returns the next argument. For `--option=value`, returns only `--option`.
    fn next(&mut self) -> Option<&'a OsStr> {
        let argument = self.arguments.next()?.as_os_str();
        let bytes = argument.as_bytes();
        let equals_position = bytes.iter().position(|byte| *byte == b'=');
        self.value_after_equals = None;
        match equals_position.filter(|_| bytes.starts_with(b"--")) {
            None => Some(argument),
            Some(position) => {
                self.value_after_equals = Some(OsStr::from_bytes(&bytes[position + 1..]));
                Some(OsStr::from_bytes(&bytes[..position]))
            }
        }
    }

    /// Returns the value of the last option that `next` returned: the text after `=`, or the next
    /// argument. Fails if there is no value, or if the next argument begins with a dash.
    fn read_value(&mut self, option: &'static str) -> Result<&'a OsStr, UsageError> {
        let value = self.value_after_equals.take().or_else(|| {
            let argument = self.arguments.next()?.as_os_str();
            Some(argument).filter(|argument| !argument.as_bytes().starts_with(b"-"))
        });
        value
            .filter(|value| !value.is_empty())
            .ok_or(UsageError::MissingValue(option))
    }

    fn parse_value<T, E: Display>(
        &mut self,
        option: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, UsageError> {
        let value = self.read_value(option)?;
        let to_invalid_value = |problem| UsageError::InvalidValue {
            option,
            value: value.to_string_lossy().into(),
            problem,
        };
        let text = value
            .to_str()
            .ok_or_else(|| to_invalid_value("it is not UTF-8".to_owned()))?;
        parse(text).map_err(|error| to_invalid_value(error.to_string()))
    }

    fn set_flag(&mut self, flag: &mut bool, option: &'static str) -> Result<(), UsageError> {
        self.check_no_value(option)?;
        if *flag {
            return Err(UsageError::RepeatedOption(option));
        }
        *flag = true;
        Ok(())
    }

    fn check_no_value(&self, option: &'static str) -> Result<(), UsageError> {
        match self.value_after_equals {
            None => Ok(()),
            Some(_) => Err(UsageError::UnexpectedValue(option)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<CommandLine, String> {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        CommandLine::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn options_may_be_before_and_after_the_stage() {
        let with_config = || StartOptions {
            config_path: Some("/a b.toml".into()),
            ..StartOptions::default()
        };
        let with_level = |level| StartOptions {
            log_level: Some(level),
            ..StartOptions::default()
        };
        let with_grant = || StartOptions {
            caller: Caller::Cdi(CdiGrant::parse("npu=0,1@u-1").unwrap()),
            ..StartOptions::default()
        };
        let all_options = StartOptions {
            config_path: Some("c".into()),
            deadline_seconds: NonZeroU32::new(300),
            additional_class_dir: Some("/classes".into()),
            log_level: Some(LogLevel::Info),
            is_json: true,
            ..with_grant()
        };
        for (words, expected) in [
            (&["prestart"][..], StartOptions::default()),
            (&["create-runtime"], StartOptions::default()),
            (&["--config", "/a b.toml", "prestart"], with_config()),
            (&["--config=/a b.toml", "create-runtime"], with_config()),
            (&["prestart", "--config", "/a b.toml"], with_config()),
            (
                &["--log-level", "error", "prestart"],
                with_level(LogLevel::Error),
            ),
            (
                &["prestart", "--log-level=warning"],
                with_level(LogLevel::Warning),
            ),
            (
                &["--log-level", "info", "prestart"],
                with_level(LogLevel::Info),
            ),
            (&["-v", "prestart"], with_level(LogLevel::Info)),
            (&["prestart", "--verbose"], with_level(LogLevel::Info)),
            (
                &[
                    "--masked-path",
                    "/sys/firmware",
                    "--masked-path=/proc/asound",
                    "prestart",
                ],
                StartOptions {
                    masked_paths: vec!["/sys/firmware".into(), "/proc/asound".into()],
                    ..StartOptions::default()
                },
            ),
            (&["create-runtime", "--cdi", "npu=0,1@u-1"], with_grant()),
            (&["create-runtime", "--cdi=npu=0,1@u-1"], with_grant()),
            (
                &[
                    "--also-classes",
                    "/classes",
                    "--deadline",
                    "300",
                    "--json",
                    "-v",
                    "--config",
                    "c",
                    "create-runtime",
                    "--cdi",
                    "npu=0,1@u-1",
                ],
                all_options,
            ),
        ] {
            assert_eq!(parse(words), Ok(CommandLine::Start(expected)), "{words:?}");
        }
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        for (words, expected) in [
            (&["--help"][..], CommandLine::Help),
            (&["-h"], CommandLine::Help),
            (&["prestart", "--help"], CommandLine::Help),
            (&["--version"], CommandLine::Version),
            (&["-V"], CommandLine::Version),
        ] {
            assert_eq!(parse(words), Ok(expected), "{words:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (words, reason) in [
            (&[][..], "neither `prestart` nor `create-runtime` is given"),
            (
                &["--config", "x"],
                "neither `prestart` nor `create-runtime` is given",
            ),
            (
                &["list"],
                "there is no stage `list`; the commands for administrators are those of `boathook`",
            ),
            (
                &["", "prestart"],
                "there is no stage ``; the commands for administrators are those of `boathook`",
            ),
            (
                &["prestart", "create-runtime"],
                "unexpected argument `create-runtime`",
            ),
            (&["prestart", "x"], "unexpected argument `x`"),
            (&["--bogus", "prestart"], "unexpected argument `--bogus`"),
            (&["--conf", "x", "prestart"], "unexpected argument `--conf`"),
            (&["--", "prestart"], "unexpected argument `--`"),
            (&["-x", "prestart"], "unexpected argument `-x`"),
            (&["-vv", "prestart"], "unexpected argument `-vv`"),
            (&["--config"], "`--config` needs a value"),
            (&["--config", "", "prestart"], "`--config` needs a value"),
            (&["--config=", "prestart"], "`--config` needs a value"),
            (
                &["--config", "--json", "prestart"],
                "`--config` needs a value",
            ),
            (&["prestart", "--cdi"], "`--cdi` needs a value"),
            (
                &["--also-classes", "-", "prestart"],
                "`--also-classes` needs a value",
            ),
            (&["--json=yes", "prestart"], "`--json` takes no value"),
            (&["--help=all"], "`--help` takes no value"),
            (
                &["--config", "a", "prestart", "--config", "b"],
                "`--config` is given twice",
            ),
            (
                &["-v", "prestart", "--verbose"],
                "`--verbose` is given twice",
            ),
            (
                &["prestart", "--cdi", "npu=0", "--cdi", "npu=1"],
                "`--cdi` is given twice",
            ),
            (
                &["-v", "--log-level", "error", "prestart"],
                "`--verbose` and `--log-level` exclude each other",
            ),
            (
                &["prestart", "--cdi", "npu"],
                "invalid value `npu` for `--cdi`: not CLASS=DEVICE",
            ),
            (
                &["prestart", "--cdi", "npu=none"],
                "invalid value `npu=none` for `--cdi`: `none` names no device",
            ),
            (
                &["--log-level", "debug", "prestart"],
                "invalid value `debug` for `--log-level`: write error, warning or info",
            ),
            (
                &["--masked-path", "sys/firmware", "prestart"],
                "invalid value `sys/firmware` for `--masked-path`: it is not an absolute path",
            ),
            (
                &["--deadline", "soon", "prestart"],
                "invalid value `soon` for `--deadline`: invalid digit found in string",
            ),
            (
                &["--deadline", "0", "prestart"],
                "invalid value `0` for `--deadline`: number would be zero for non-zero type",
            ),
        ] {
            assert_eq!(parse(words), Err(reason.to_owned()), "{words:?}");
        }
    }

    #[test]
    fn a_path_need_not_be_utf8() {
        let path = OsStr::from_bytes(b"/\xff").to_owned();
        let arguments = ["--config".into(), path.clone(), "prestart".into()];
        let expected = StartOptions {
            config_path: Some(path.clone().into()),
            ..StartOptions::default()
        };
        assert_eq!(
            CommandLine::parse(&arguments),
            Ok(CommandLine::Start(expected))
        );
        let arguments = ["prestart".into(), "--cdi".into(), path];
        assert!(CommandLine::parse(&arguments).is_err());
    }
}
