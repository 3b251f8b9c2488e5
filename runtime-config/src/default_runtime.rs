//! The runtime that an engine calls by default, which `boathook-runtime` replaces with
//! `--set-default`.
//!
//! `boathook-runtime` calls runc, crun or youki unless config.toml names another program.
//! A default runtime that isolates containers better, such as by a virtual machine, must
//! not be lost by that: `boathook-runtime` calls the runtime that was the default, or the
//! plan is refused.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::facts::{Engine, RUNTIMES};
use crate::options::Options;
use crate::snapshot::Snapshot;

/// The runtime of containers for which none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultRuntime {
    /// Its name in the engine's configuration.
    pub(crate) name: String,
    pub(crate) kind: RuntimeKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuntimeKind {
    /// A program with the command line of an OCI runtime: an absolute path, or a name that
    /// the engine searches in its PATH.
    Program(PathBuf),
    /// Something that `boathook-runtime` cannot call, and what that is.
    Other(String),
}

/// The default runtime that a plan replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedRuntime {
    /// Its name in the engine's configuration.
    pub name: String,
    /// The program that `boathook-runtime` has to call in its place; `None`: the runc that
    /// it finds by itself.
    pub program: Option<PathBuf>,
}

impl DefaultRuntime {
    /// runc, which the engine searches in its PATH, as `boathook-runtime` does.
    pub(crate) fn runc() -> Self {
        Self::program("runc", "runc")
    }

    pub(crate) fn program(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Program(program.into()),
        }
    }

    pub(crate) fn new_other(name: &str, what: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            kind: RuntimeKind::Other(what.into()),
        }
    }

    /// What `boathook-runtime` has to call so that containers are as isolated as before;
    /// `None`: the engine goes on calling the program of its default runtime.
    ///
    /// # Errors
    /// Nothing that it can call isolates them as the default runtime does.
    pub(crate) fn replace(
        &self,
        engine: Engine,
        base: &Snapshot,
        options: &Options,
    ) -> Result<Option<ReplacedRuntime>, Error> {
        let program = match &self.kind {
            RuntimeKind::Other(what) => return Err(self.refuse(engine, what, None)),
            RuntimeKind::Program(program) => program,
        };
        // The handler with a base spec calls the program of the default one.
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

    fn refuse(&self, engine: Engine, what: &str, program: Option<&Path>) -> Error {
        let name = &self.name;
        let shown = if what == name {
            name.clone()
        } else {
            format!("{name} ({what})")
        };
        let or_keep = program.map(|program| {
            let path = match program.is_absolute() {
                true => program.display().to_string(),
                false => format!("/PATH/OF/{}", program.display()),
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
            or_keep.unwrap_or_default()
        ))
    }
}

/// Whether the program is one of those that isolate containers alike, with namespaces and
/// cgroups.
fn is_like_runc(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| RUNTIMES.contains(&name))
}

/// Whether an engine that was given `program`, as a path or a name, calls `configured`.
fn is_same(program: &Path, configured: &Path) -> bool {
    match program.is_absolute() {
        true => program == configured,
        false => Some(program.as_os_str()) == configured.file_name(),
    }
}

/// Refuses a default runtime that is set in a file which the engine reads after ours.
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

/// The one program that `boathook-runtime` has to call for all plans' engines: `None`, the
/// runc that it finds.
///
/// # Errors
/// It would have to call several.
pub fn common_runtime<'p>(
    replaced: impl Iterator<Item = (Engine, &'p ReplacedRuntime)> + Clone,
) -> Result<Option<&'p Path>, Error> {
    let is_runc = |path: &Path| path.file_name() == Some("runc".as_ref());
    let mut programs = replaced.clone();
    let wanted = programs.find_map(|(_, replaced)| replaced.program.as_deref());
    let fits = |program: Option<&Path>| match program {
        Some(program) => Some(program) == wanted,
        None => wanted.is_none_or(is_runc),
    };
    if replaced
        .clone()
        .all(|(_, one)| fits(one.program.as_deref()))
    {
        return Ok(wanted);
    }
    let each: Vec<String> = replaced
        .map(|(engine, one)| {
            let program = one.program.as_deref().unwrap_or(Path::new("runc"));
            format!("{engine} {}", program.display())
        })
        .collect();
    Err(Error::Other(format!(
        "the engines have different default runtimes ({}), and boathook-runtime calls one program \
         for all of them: use --set-default with a single --engine, or set `path` in [runtime] of \
         /etc/boathook/config.toml",
        each.join(", ")
    )))
}
