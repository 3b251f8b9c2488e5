//! Makes `boathook-runtime` the default runtime of an engine, as the option `--set-default`
//! requests.
//!
//! `boathook-runtime` calls runc, crun or youki, unless config.toml names another program. The
//! previous default runtime may isolate containers better than these programs, for example with a
//! virtual machine, and this isolation must not be lost. So `boathook-runtime` calls the previous
//! default runtime. If it cannot, planning fails.

use std::path::{Path, PathBuf};

use crate::engine_properties::{Engine, OCI_RUNTIME_NAMES};
use crate::error::Error;
use crate::options::InstallOptions;
use crate::snapshot::Snapshot;

/// The default runtime of an engine. The engine uses it for containers that name no runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultRuntime {
    /// The name of the runtime in the engine's configuration, such as `runc`.
    pub(crate) name: String,
    pub(crate) kind: RuntimeKind,
}

/// The way in which an engine calls a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    /// The engine calls a program that has the command line of an OCI runtime. The value is an
    /// absolute path, or a name that the engine searches for in its PATH.
    Program(PathBuf),
    /// A runtime that `boathook-runtime` cannot call, such as a shim. The text describes the
    /// runtime for the error message.
    Unsupported(String),
}

/// The default runtime that an installation replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedRuntime {
    /// The name of the runtime in the engine's configuration.
    pub name: String,
    /// The program that `boathook-runtime` must call. `None` means the runc that `boathook-runtime`
    /// finds in its PATH.
    pub program: Option<PathBuf>,
}

impl DefaultRuntime {
    /// Returns runc, without a path. The engine searches for it in its PATH, as `boathook-runtime`
    /// does.
    pub(crate) fn new_runc() -> Self {
        Self::new_program("runc", "runc")
    }

    pub(crate) fn new_program(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Program(program.into()),
        }
    }

    pub(crate) fn new_unsupported(name: &str, description: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Unsupported(description.into()),
        }
    }

    /// Returns the program that `boathook-runtime` must call in place of this default runtime, so
    /// that containers stay as isolated as before. Returns `None` if the engine continues to call
    /// the program of this runtime itself.
    ///
    /// # Errors
    /// Fails if `boathook-runtime` can call no program that isolates containers as the default
    /// runtime does.
    pub(crate) fn plan_replacement(
        &self,
        engine: Engine,
        snapshot: &Snapshot,
        options: &InstallOptions,
    ) -> Result<Option<ReplacedRuntime>, Error> {
        let program = match &self.kind {
            RuntimeKind::Unsupported(description) => {
                return Err(self.new_isolation_error(engine, description, None));
            }
            RuntimeKind::Program(program) => program,
        };
        // With a base specification, containerd takes the hook from this specification. So
        // Boathook's handler keeps the program of the default handler.
        if options.base_spec.is_some() && engine.supports_base_spec() {
            return Ok(None);
        }
        let isolates_like_runc = has_runc_isolation(program);
        let called_program = match &options.real_runtime_path {
            Some(configured_program)
                if isolates_like_runc || refers_to_executable(program, configured_program) =>
            {
                Some(configured_program.as_path())
            }
            None if program == Path::new("runc") => None,
            None if isolates_like_runc && snapshot.find_program(program).is_some() => {
                snapshot.find_program(program)
            }
            _ => {
                let description = program.to_string_lossy();
                return Err(self.new_isolation_error(engine, &description, Some(program)));
            }
        };
        Ok(Some(ReplacedRuntime {
            name: self.name.clone(),
            program: called_program.map(Path::to_path_buf),
        }))
    }

    /// Returns the error for a default runtime that cannot be replaced without a loss of isolation.
    /// `program` is the program of this runtime, if `boathook-runtime` could call it.
    fn new_isolation_error(
        &self,
        engine: Engine,
        description: &str,
        program: Option<&Path>,
    ) -> Error {
        let name = &self.name;
        let runtime = if description == name {
            name.clone()
        } else {
            format!("{name} ({description})")
        };
        let advice = program.map(|program| {
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
            "{engine}: the default runtime is {runtime}, and with --set-default containers would be \
             started by another runtime, which may isolate them less: use --no-set-default, and \
             name the runtime boathook for containers with devices; or make runc the default \
             runtime first{}",
            advice.unwrap_or_default()
        ))
    }
}

/// Returns whether the name of the program is runc, crun or youki. These three runtimes isolate
/// containers in the same way, with namespaces and cgroups.
fn has_runc_isolation(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| OCI_RUNTIME_NAMES.contains(&name))
}

/// Returns whether `program`, as an engine's configuration names it, is the executable
/// `configured_path`. If `program` is not an absolute path, it is compared with the file name of
/// the executable.
fn refers_to_executable(program: &Path, configured_path: &Path) -> bool {
    if program.is_absolute() {
        program == configured_path
    } else {
        Some(program.as_os_str()) == configured_path.file_name()
    }
}

/// Returns an error if the engine reads the file `path` after Boathook's drop-in `own_drop_in`.
/// Both files set a default runtime, and the engine uses the setting that it reads last.
pub(crate) fn refuse_overriding_setting(
    own_drop_in: &Path,
    path: &Path,
    line: usize,
) -> Result<(), Error> {
    if path.parent() == own_drop_in.parent() && path > own_drop_in {
        let problem = format!(
            "this default runtime has precedence over that of {}, which is read before: take it \
             out, or use --no-set-default",
            own_drop_in.display()
        );
        return Err(Error::new_at_line(path, line, problem));
    }
    Ok(())
}

/// Returns the program that `boathook-runtime` must call in place of the replaced default runtimes
/// of all engines. `None` means the runc that `boathook-runtime` finds in its PATH.
///
/// # Errors
/// Fails if the engines need different programs, because `boathook-runtime` has only one setting
/// for all engines.
pub fn find_common_runtime<'p>(
    replaced_runtimes: impl Iterator<Item = (Engine, &'p ReplacedRuntime)> + Clone,
) -> Result<Option<&'p Path>, Error> {
    let is_runc = |path: &Path| path.file_name() == Some("runc".as_ref());
    let common_program = replaced_runtimes
        .clone()
        .find_map(|(_, runtime)| runtime.program.as_deref());
    let have_common_program =
        replaced_runtimes
            .clone()
            .all(|(_, runtime)| match runtime.program.as_deref() {
                Some(program) => Some(program) == common_program,
                None => common_program.is_none_or(is_runc),
            });
    if have_common_program {
        return Ok(common_program);
    }
    let programs: Vec<String> = replaced_runtimes
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
