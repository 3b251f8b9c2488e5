//! Entries of `hooks` in config.json.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::binaries;

/// The time at which a runtime calls a hook (OCI runtime specification, "POSIX-platform Hooks").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `prestart`, which the specification deprecates but every runtime supports.
    Prestart,
    /// `createRuntime`, which replaces `prestart`.
    CreateRuntime,
}

impl Stage {
    pub const ALL: [Self; 2] = [Self::Prestart, Self::CreateRuntime];

    /// Returns the key in `hooks` of config.json for this stage.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
        }
    }

    /// Returns the subcommand of `boathook-hook` for this stage.
    pub fn subcommand(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "create-runtime",
        }
    }
}

/// A program that the runtime calls as a hook.
#[derive(Clone, Debug)]
pub struct HookCommand {
    path: PathBuf,
    args: Vec<String>,
    env: Vec<String>,
    timeout: i64,
}

impl HookCommand {
    /// Returns a hook without arguments. Its environment has a `PATH`, because runtimes replace an
    /// empty environment by their own.
    pub fn new(path: &Path) -> Self {
        let args = vec![path.display().to_string()];
        Self {
            path: path.to_path_buf(),
            args,
            env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_string()],
            timeout: 30,
        }
    }

    /// Returns a call of `boathook-hook` with the configuration file `config`.
    pub fn boathook(stage: Stage, config: &Path) -> Result<Self> {
        Ok(Self::boathook_at(
            &binaries::program("boathook-hook")?,
            stage,
            config,
        ))
    }

    /// Returns a call of `program`, which is `boathook-hook` of another build.
    pub fn boathook_at(program: &Path, stage: Stage, config: &Path) -> Self {
        let config = config.display().to_string();
        let hook = Self::new(program);
        hook.arg("--config").arg(&config).arg(stage.subcommand())
    }

    /// Returns a hook that bind-mounts a directory of the host on an existing directory of the
    /// container. A mount of config.json cannot do this below `/proc`, where runtimes refuse it;
    /// tests need it there to imitate a driver's directory that the test machine lacks.
    pub fn binding(source: &Path, target: &str) -> Self {
        const SCRIPT: &str = r#"
            state=$(cat)
            field() { echo "$state" | sed "s/.*\"$1\": *\"*\([^\",}]*\).*/\1/"; }
            exec nsenter --target "$(field pid)" --mount -- \
                mount --bind "$1" "$(field bundle)/rootfs$2"
        "#;
        let shell = Self::new(Path::new("/bin/sh")).arg("-c").arg(SCRIPT);
        let source = source.display().to_string();
        shell.arg("sh").arg(&source).arg(target)
    }

    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.args.push(argument.to_string());
        self
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push(format!("{key}={value}"));
        self
    }

    /// Sets the time in seconds after which the runtime kills the hook.
    #[must_use]
    pub fn timeout(mut self, seconds: u16) -> Self {
        self.timeout = seconds.into();
        self
    }

    /// Makes the named system calls fail with `errno` (`ENOSYS` or `EPERM`) in the hook, as on an
    /// older kernel or under a seccomp filter.
    pub fn without_syscalls(self, errno: &str, calls: &[&str]) -> Result<Self> {
        let wrapper = Self::new(&binaries::program("without-syscalls")?)
            .arg(errno)
            .arg(&calls.join(","));
        Ok(self.behind(wrapper))
    }

    /// Gives the hook a private /run; the program `private-run` describes it.
    pub fn with_private_run(self) -> Result<Self> {
        let wrapper = Self::new(&binaries::program("private-run")?);
        Ok(self.behind(wrapper))
    }

    /// Runs the hook by `wrapper`, a program that takes a command as its last arguments.
    #[must_use]
    pub fn behind(self, wrapper: Self) -> Self {
        Self {
            args: [wrapper.args, self.args].concat(),
            path: wrapper.path,
            ..self
        }
    }

    /// Returns the entry for a list of `hooks` in config.json.
    pub(super) fn entry(&self) -> Value {
        json!({"path": self.path, "args": self.args, "env": self.env, "timeout": self.timeout})
    }
}
