//! Parses the command line of `boathook-hook`. Every argument must be known, because a hook
//! that ignores an argument could give a container something else than was configured.

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

/// The command that the command line requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommandLine {
    Start(StartOptions),
    Help,
    Version,
}

/// The options for the start of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StartOptions {
    /// The configuration, if it is not the default one.
    pub(crate) config: Option<PathBuf>,
    /// Seconds until the hook gives up. Only tests set it.
    pub(crate) deadline: Option<NonZeroU32>,
    /// A further directory of class files, for `boathook class test`.
    pub(crate) also_classes: Option<PathBuf>,
    pub(crate) log_level: Option<LogLevel>,
    /// Whether a failure is printed as JSON.
    pub(crate) is_json: bool,
    /// The paths that the hook masks in place of the runtime.
    pub(crate) masked_paths: Vec<PathBuf>,
    pub(crate) caller: Caller,
}

/// The reason for which the command line is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum UsageError {
    #[error("unexpected argument `{0}`")]
    Unexpected(String),
    #[error("there is no stage `{0}`; the commands for administrators are those of `boathook`")]
    Stage(String),
    #[error("neither `prestart` nor `create-runtime` is given")]
    NoStage,
    #[error("`{0}` needs a value")]
    NoValue(&'static str),
    #[error("`{0}` takes no value")]
    Value(&'static str),
    #[error("`{0}` is given twice")]
    Repeated(&'static str),
    #[error("`--verbose` and `--log-level` exclude each other")]
    Verbosity,
    #[error("invalid value `{value}` for `{option}`: {problem}")]
    Invalid {
        option: &'static str,
        value: String,
        problem: String,
    },
}

impl CommandLine {
    /// Parses the arguments after the name of the program.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Self, UsageError> {
        let mut options = StartOptions::default();
        let (mut grant, mut stage, mut is_verbose) = (None, None, false);
        let mut words = Words {
            arguments: arguments.iter(),
            value: None,
        };
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--config") => {
                    let file = words.read_value("--config")?;
                    set_once(&mut options.config, "--config", file.into())?;
                }
                Some("--also-classes") => {
                    let directory = words.read_value("--also-classes")?;
                    set_once(
                        &mut options.also_classes,
                        "--also-classes",
                        directory.into(),
                    )?;
                }
                Some("--deadline") => {
                    let seconds = words.parse_value("--deadline", str::parse)?;
                    set_once(&mut options.deadline, "--deadline", seconds)?;
                }
                Some("--log-level") => {
                    let level = words.parse_value("--log-level", parse_level)?;
                    set_once(&mut options.log_level, "--log-level", level)?;
                }
                Some("--cdi") => {
                    let device = words.parse_value("--cdi", CdiGrant::parse)?;
                    set_once(&mut grant, "--cdi", device)?;
                }
                Some(MASKED_PATH_OPTION) => {
                    let path = words.parse_value(MASKED_PATH_OPTION, parse_masked_path)?;
                    options.masked_paths.push(path);
                }
                Some("-v" | "--verbose") => words.set_flag(&mut is_verbose, "--verbose")?,
                Some("--json") => words.set_flag(&mut options.is_json, "--json")?,
                Some("-h" | "--help") => {
                    words.refuse_value("--help")?;
                    return Ok(Self::Help);
                }
                Some("-V" | "--version") => {
                    words.refuse_value("--version")?;
                    return Ok(Self::Version);
                }
                Some("prestart" | "create-runtime") if stage.is_none() => stage = Some(word),
                _ if stage.is_some() || word.as_bytes().starts_with(b"-") => {
                    return Err(UsageError::Unexpected(word.to_string_lossy().into()));
                }
                _ => return Err(UsageError::Stage(word.to_string_lossy().into())),
            }
        }
        if stage.is_none() {
            return Err(UsageError::NoStage);
        }
        if is_verbose {
            set_once(&mut options.log_level, "", LogLevel::Info)
                .map_err(|_| UsageError::Verbosity)?;
        }
        options.caller = grant.map_or(Caller::Engine, Caller::Cdi);
        Ok(Self::Start(options))
    }
}

/// Sets the value of an option that was not given before.
fn set_once<T>(place: &mut Option<T>, option: &'static str, value: T) -> Result<(), UsageError> {
    if place.is_some() {
        return Err(UsageError::Repeated(option));
    }
    *place = Some(value);
    Ok(())
}

fn parse_masked_path(text: &str) -> Result<PathBuf, &'static str> {
    if !text.starts_with('/') {
        return Err("it is not an absolute path");
    }
    Ok(text.into())
}

pub(crate) fn parse_level(text: &str) -> Result<LogLevel, &'static str> {
    match text {
        "error" => Ok(LogLevel::Error),
        "warning" => Ok(LogLevel::Warning),
        "info" => Ok(LogLevel::Info),
        _ => Err("write error, warning or info"),
    }
}

/// The words of a command line: options, without the value after `=`, and stages.
struct Words<'a> {
    arguments: slice::Iter<'a, OsString>,
    /// The text after `=` in the last option.
    value: Option<&'a OsStr>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a OsStr> {
        let argument = self.arguments.next()?.as_os_str();
        let bytes = argument.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        self.value = None;
        match equals.filter(|_| bytes.starts_with(b"--")) {
            None => Some(argument),
            Some(at) => {
                self.value = Some(OsStr::from_bytes(&bytes[at + 1..]));
                Some(OsStr::from_bytes(&bytes[..at]))
            }
        }
    }

    /// Returns the value of an option: the text after `=`, or the next argument if it is not
    /// an option.
    fn read_value(&mut self, option: &'static str) -> Result<&'a OsStr, UsageError> {
        let value = self.value.take().or_else(|| {
            let next = self.arguments.next()?.as_os_str();
            Some(next).filter(|next| !next.as_bytes().starts_with(b"-"))
        });
        value
            .filter(|value| !value.is_empty())
            .ok_or(UsageError::NoValue(option))
    }

    fn parse_value<T, E: Display>(
        &mut self,
        option: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, UsageError> {
        let value = self.read_value(option)?;
        let invalid = |problem| UsageError::Invalid {
            option,
            value: value.to_string_lossy().into(),
            problem,
        };
        let text = value
            .to_str()
            .ok_or_else(|| invalid("it is not UTF-8".to_owned()))?;
        parse(text).map_err(|error| invalid(error.to_string()))
    }

    fn set_flag(&mut self, flag: &mut bool, option: &'static str) -> Result<(), UsageError> {
        self.refuse_value(option)?;
        if *flag {
            return Err(UsageError::Repeated(option));
        }
        *flag = true;
        Ok(())
    }

    fn refuse_value(&self, option: &'static str) -> Result<(), UsageError> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(UsageError::Value(option)),
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
            config: Some("/a b.toml".into()),
            ..StartOptions::default()
        };
        let with_level = |level| StartOptions {
            log_level: Some(level),
            ..StartOptions::default()
        };
        let granted = || StartOptions {
            caller: Caller::Cdi(CdiGrant::parse("npu=0,1@u-1").unwrap()),
            ..StartOptions::default()
        };
        let all = StartOptions {
            config: Some("c".into()),
            deadline: NonZeroU32::new(300),
            also_classes: Some("/classes".into()),
            log_level: Some(LogLevel::Info),
            is_json: true,
            ..granted()
        };
        for (words, wanted) in [
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
            (&["create-runtime", "--cdi", "npu=0,1@u-1"], granted()),
            (&["create-runtime", "--cdi=npu=0,1@u-1"], granted()),
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
                all,
            ),
        ] {
            assert_eq!(parse(words), Ok(CommandLine::Start(wanted)), "{words:?}");
        }
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        for (words, wanted) in [
            (&["--help"][..], CommandLine::Help),
            (&["-h"], CommandLine::Help),
            (&["prestart", "--help"], CommandLine::Help),
            (&["--version"], CommandLine::Version),
            (&["-V"], CommandLine::Version),
        ] {
            assert_eq!(parse(words), Ok(wanted), "{words:?}");
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
        let wanted = StartOptions {
            config: Some(path.clone().into()),
            ..StartOptions::default()
        };
        assert_eq!(
            CommandLine::parse(&arguments),
            Ok(CommandLine::Start(wanted))
        );
        let arguments = ["prestart".into(), "--cdi".into(), path];
        assert!(CommandLine::parse(&arguments).is_err());
    }
}
