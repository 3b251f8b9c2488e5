//! Replaces the default runtime of an engine by `boathook-runtime`, as the option `--set-default`
//! requests.
//!
//! `boathook-runtime` calls runc, crun or youki unless config.toml names another program. An
//! engine's default runtime may isolate containers better than these, for example by a virtual
//! machine. Such isolation must not be lost: `boathook-runtime` calls the former default
//! runtime, or the plan is refused.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::facts::{Engine, RUNTIMES};
use crate::options::Options;
use crate::snapshot::Snapshot;

/// The runtime of containers for which no runtime is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultRuntime {
    /// The runtime's name in the engine's configuration.
    pub(crate) name: String,
    pub(crate) kind: RuntimeKind,
}

/// The form in which an engine calls a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    /// The engine calls a program with the command line of an OCI runtime. The value is an absolute
    /// path, or a name that the engine searches in its PATH.
    Program(PathBuf),
    /// A runtime that `boathook-runtime` cannot call, such as a shim. The text describes the
    /// runtime for the error message.
    Other(String),
}

/// The default runtime that a plan replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedRuntime {
    /// The runtime's name in the engine's configuration.
    pub name: String,
    /// The program that `boathook-runtime` has to call. `None` means the runc that
    /// `boathook-runtime` finds in its PATH.
    pub program: Option<PathBuf>,
}

impl DefaultRuntime {
    /// Returns runc by its name. The engine searches it in its PATH, as `boathook-runtime` does.
    pub(crate) fn runc() -> Self {
        Self::program("runc", "runc")
    }

    pub(crate) fn program(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Program(program.into()),
        }
    }

    pub(crate) fn new_other(name: &str, description: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Other(description.into()),
        }
    }

    /// Returns the runtime that `boathook-runtime` has to call so that containers are as isolated
    /// as before. Returns `None` if the engine continues to call the program of its default
    /// runtime by itself.
    ///
    /// # Errors
    /// Fails if `boathook-runtime` can call no program that isolates containers as the default
    /// runtime does.
    pub(crate) fn replace(
        &self,
        engine: Engine,
        base: &Snapshot,
        options: &Options,
    ) -> Result<Option<ReplacedRuntime>, Error> {
        let program = match &self.kind {
            RuntimeKind::Other(description) => {
                return Err(self.refuse(engine, description, None));
            }
            RuntimeKind::Program(program) => program,
        };
        // A handler with a base specification calls the hook from there, so it keeps the
        // program of the default handler.
        if options.base_spec.is_some() && engine.has_base_spec() {
            return Ok(None);
        }
        let is_like_runc = is_like_runc(program);
        let called = match &options.real_runtime {
            Some(configured) if is_like_runc || is_same(program, configured) => {
                Some(configured.as_path())
            }
            None if program == Path::new("runc") => None,
            None if is_like_runc && base.find_program(program).is_some() => {
                base.find_program(program)
            }
            _ => return Err(self.refuse(engine, &program.to_string_lossy(), Some(program))),
        };
        Ok(Some(ReplacedRuntime {
            name: self.name.clone(),
            program: called.map(Path::to_path_buf),
        }))
    }

    fn refuse(&self, engine: Engine, description: &str, program: Option<&Path>) -> Error {
        let name = &self.name;
        let shown = if description == name {
            name.clone()
        } else {
            format!("{name} ({description})")
        };
        let keep_advice = program.map(|program| {
            let path = if program.is_absolute() {
                program.display().to_string()
            } else {
                format!("/PATH/OF/{}", program.display())
            };
            format!(
                "; or set `path = \"{path}\"` in [runtime] of /etc/boathook/config.toml, so that \
                 boathook-runtime calls it"
            )
        });
        Error::Other(format!(
            "{engine}: the default runtime is {shown}, and with --set-default containers would be \
             started by another runtime, which may isolate them less: leave --set-default out, and \
             name the runtime boathook for containers with devices; or make runc the default \
             runtime first{}",
            keep_advice.unwrap_or_default()
        ))
    }
}

/// Returns whether the program is runc, crun or youki by its name. These three isolate
/// containers in the same way, by namespaces and cgroups.
fn is_like_runc(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| RUNTIMES.contains(&name))
}

/// Returns whether the engine's `program`, a path or a name, is the program `configured`. A
/// name is compared with the last component of `configured`.
fn is_same(program: &Path, configured: &Path) -> bool {
    if program.is_absolute() {
        program == configured
    } else {
        Some(program.as_os_str()) == configured.file_name()
    }
}

/// Refuses a default runtime that is set in the file `path` if the engine reads this file after
/// Boathook's drop-in `own`. The engine would use the later setting.
pub(crate) fn refuse_later(own: &Path, path: &Path, line: usize) -> Result<(), Error> {
    if path.parent() == own.parent() && path > own {
        let problem = format!(
            "this default runtime has precedence over that of {}, which is read before: take it \
             out, or leave --set-default out",
            own.display()
        );
        return Err(Error::new_at_line(path, line, problem));
    }
    Ok(())
}

/// Returns the one program that `boathook-runtime` has to call for the engines of all plans.
/// `None` means the runc that `boathook-runtime` finds in its PATH.
///
/// # Errors
/// Fails if the engines need different programs, because `boathook-runtime` has one setting for
/// all of them.
pub fn common_runtime<'p>(
    replaced: impl Iterator<Item = (Engine, &'p ReplacedRuntime)> + Clone,
) -> Result<Option<&'p Path>, Error> {
    let is_runc = |path: &Path| path.file_name() == Some("runc".as_ref());
    let mut programs = replaced.clone();
    let wanted = programs.find_map(|(_, replaced)| replaced.program.as_deref());
    let all_agree = replaced
        .clone()
        .all(|(_, runtime)| match runtime.program.as_deref() {
            Some(program) => Some(program) == wanted,
            None => wanted.is_none_or(is_runc),
        });
    if all_agree {
        return Ok(wanted);
    }
    let programs: Vec<String> = replaced
        .map(|(engine, runtime)| {
            let program = runtime.program.as_deref().unwrap_or(Path::new("runc"));
            format!("{engine} {}", program.display())
        })
        .collect();
    Err(Error::Other(format!(
        "the engines have different default runtimes ({}), and boathook-runtime calls one program \
         for all of them: use --set-default with a single --engine, or set `path` in [runtime] of \
         /etc/boathook/config.toml",
        programs.join(", ")
    )))
}
