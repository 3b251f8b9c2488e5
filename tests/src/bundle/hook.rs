//! Hook entries of config.json.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::binaries;

/// When a hook is called (OCI runtime spec, "POSIX-platform Hooks").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `prestart`, deprecated in the spec and run by every runtime.
    Prestart,
    /// `createRuntime`, its successor.
    CreateRuntime,
}

impl Stage {
    pub const ALL: [Self; 2] = [Self::Prestart, Self::CreateRuntime];

    /// The key of its hooks in config.json.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "createRuntime",
        }
    }

    /// The hook's subcommand for this stage.
    pub fn subcommand(self) -> &'static str {
        match self {
            Self::Prestart => "prestart",
            Self::CreateRuntime => "create-runtime",
        }
    }
}

/// A program to call as a hook.
#[derive(Clone, Debug)]
pub struct HookCommand {
    path: PathBuf,
    args: Vec<String>,
    env: Vec<String>,
    timeout: i64,
}

impl HookCommand {
    /// A hook without arguments. Its environment is not empty, because runtimes
    /// give an empty one their own.
    pub fn new(path: &Path) -> Self {
        let args = vec![path.display().to_string()];
        Self {
            path: path.to_path_buf(),
            args,
            env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_string()],
            timeout: 30,
        }
    }

    /// `boathook-hook` with this configuration file.
    pub fn boathook(stage: Stage, config: &Path) -> Result<Self> {
        Ok(Self::boathook_at(
            &binaries::program("boathook-hook")?,
            stage,
            config,
        ))
    }

    /// Boathook's hook of another build.
    pub fn boathook_at(program: &Path, stage: Stage, config: &Path) -> Self {
        let config = config.display().to_string();
        let hook = Self::new(program);
        hook.arg("--config").arg(&config).arg(stage.subcommand())
    }

    /// A hook that binds a directory of the host on one that the container has
    /// already. The runtime refuses to do that for what is in `/proc`, where a
    /// driver has directories of its own that this machine lacks.
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

    /// Sets the hook's timeout in seconds.
    #[must_use]
    pub fn timeout(mut self, seconds: u16) -> Self {
        self.timeout = seconds.into();
        self
    }

    /// The same hook on a kernel where the named system calls fail with `errno`
    /// (`ENOSYS` or `EPERM`).
    pub fn without_syscalls(self, errno: &str, calls: &[&str]) -> Result<Self> {
        let wrapper = Self::new(&binaries::program("without-syscalls")?)
            .arg(errno)
            .arg(&calls.join(","));
        Ok(self.behind(wrapper))
    }

    /// The same hook with a /run of its own: see the program `private-run`.
    pub fn with_private_run(self) -> Result<Self> {
        let wrapper = Self::new(&binaries::program("private-run")?);
        Ok(self.behind(wrapper))
    }

    /// The same hook, run by a program that takes a command as its last
    /// arguments.
    #[must_use]
    pub fn behind(self, wrapper: Self) -> Self {
        Self {
            args: [wrapper.args, self.args].concat(),
            path: wrapper.path,
            ..self
        }
    }

    /// The entry for config.json.
    pub(super) fn entry(&self) -> Value {
        json!({"path": self.path, "args": self.args, "env": self.env, "timeout": self.timeout})
    }
}
