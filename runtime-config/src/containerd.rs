//! Configures containerd, and the distributions that contain their own containerd.
//!
//! The layout of the configuration decides which files are changed:
//!
//! - **Configuration version 3** (containerd 2): a drop-in is written, because imported files
//!   are merged key by key. The main file changes only if it does not import the drop-in yet:
//!   then the drop-in's path is added to the list of imports.
//! - **Configuration version 2** (containerd 1.x, or 2.x reading an old file):
//!   the tables are added to the file itself. In 1.x an imported file *replaces* the whole
//!   section of a plugin. A drop-in would therefore need a copy of the whole CRI section, and
//!   the copy would hide each later change by the user. For the same reason the changed file
//!   is the last imported file with a CRI section: earlier sections have no effect.
//! - **k3s and rke2** generate containerd's file at each start. A drop-in is written if the
//!   generated file imports a drop-in directory, and otherwise the template is changed.
//! - **k0s** has a drop-in directory, and merges the CRI sections of the drop-ins itself.

mod default_runtime;
mod documents;
mod file;
mod handler;
mod in_place;
mod schema;
mod template;

use std::path::{Path, PathBuf};

use crate::drop_in::{self, HEADER};
use crate::error::Error;
use crate::host::HostRoot;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::toml_text::OWN_STEM;
use handler::Handler;
use schema::{Schema, V2};

pub(crate) use default_runtime::default_runtime;

/// The layout of containerd's configuration files, which differs between distributions.
#[derive(Debug)]
pub(crate) enum Layout {
    /// A main file that the administrator edits.
    File {
        main: &'static str,
        /// The usual drop-in directory beside the file. `None` means that there is none.
        conf_d: Option<&'static str>,
    },
    /// A directory with a file that is generated at each start, its template, and drop-ins.
    Template { dir: &'static str },
    /// A directory of drop-ins that are merged regardless of the version.
    DropIns {
        dir: &'static str,
        /// The files that contain the version and the default handler, if they exist.
        generated: [&'static str; 2],
    },
}

pub(crate) const PLAIN: Layout = Layout::File {
    main: "/etc/containerd/config.toml",
    conf_d: Some("/etc/containerd/conf.d"),
};
pub(crate) const MICROK8S: Layout = Layout::File {
    main: "/var/snap/microk8s/current/args/containerd-template.toml",
    conf_d: None,
};
pub(crate) const K3S: Layout = Layout::Template {
    dir: "/var/lib/rancher/k3s/agent/etc/containerd",
};
pub(crate) const RKE2: Layout = Layout::Template {
    dir: "/var/lib/rancher/rke2/agent/etc/containerd",
};
pub(crate) const K0S: Layout = Layout::DropIns {
    dir: "/etc/k0s/containerd.d",
    generated: ["/etc/k0s/containerd.toml", "/run/k0s/containerd-cri.toml"],
};

impl Layout {
    /// Returns the path, in containerd's directory, of the OCI specification that
    /// `base_runtime_spec` names.
    fn base_spec(&self) -> PathBuf {
        let beside = match self {
            Self::File { main, .. } => Path::new(main),
            Self::Template { dir } => &template::generated_path(dir),
            Self::DropIns { generated, .. } => Path::new(generated[0]),
        };
        beside.with_file_name(format!("{OWN_STEM}.json"))
    }
}

pub(crate) fn read(layout: &Layout, host: &HostRoot, snapshot: &mut Snapshot) -> Result<(), Error> {
    snapshot.read(host, &layout.base_spec())?;
    match layout {
        Layout::File { main, conf_d } => {
            if let Some(dir) = conf_d {
                snapshot.read(host, &own_drop_in(Path::new(dir)))?;
                drop_in::read_dir(host, Path::new(dir), ".toml", snapshot)?;
            }
            documents::read(host, Path::new(main), snapshot)
        }
        Layout::Template { dir } => {
            for path in template::writable_paths(dir) {
                snapshot.read(host, &path)?;
            }
            snapshot.set_generated(&template::generated_path(dir));
            documents::read(host, &template::generated_path(dir), snapshot)
        }
        Layout::DropIns { dir, generated } => {
            snapshot.read(host, &own_drop_in(Path::new(dir)))?;
            drop_in::read_dir(host, Path::new(dir), ".toml", snapshot)?;
            for main in generated.map(Path::new) {
                snapshot.set_generated(main);
                documents::read(host, main, snapshot)?;
            }
            Ok(())
        }
    }
}

/// The inputs from which the files of an installation are planned.
#[derive(Debug)]
struct PlanInputs<'a> {
    base: &'a Snapshot,
    options: &'a Options,
    /// The path on the host of the OCI specification for `base_runtime_spec`.
    spec_path: PathBuf,
}

pub(crate) fn plan_files(
    layout: &Layout,
    base: &Snapshot,
    options: &Options,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let spec_path = layout.base_spec();
    let mut files = Vec::new();
    if let Some(spec) = &options.base_spec {
        files.push((spec_path.clone(), handler::add_hook_to_spec(spec, options)?));
    }
    let inputs = PlanInputs {
        base,
        options,
        spec_path,
    };
    files.extend(match layout {
        Layout::File { main, conf_d } => {
            file::plan_files(Path::new(main), conf_d.map(Path::new), &inputs)?
        }
        Layout::Template { dir } => vec![template::plan_files(dir, &inputs)?],
        Layout::DropIns { dir, generated } => {
            let mut config_files = Vec::new();
            for main in generated {
                config_files.extend(documents::in_load_order(base, Path::new(main))?);
            }
            let schema = schema::detect_schema(base, Path::new(generated[0]))?.unwrap_or(&V2);
            handler::refuse_existing_handlers(schema, &config_files, &inputs)?;
            vec![drop_in(Path::new(dir), schema, &config_files, &inputs)?]
        }
    });
    Ok(files)
}

/// Returns Boathook's drop-in file in `dir`.
fn drop_in(
    dir: &Path,
    schema: &Schema,
    config_files: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(PathBuf, String), Error> {
    let handler = Handler::new(schema, config_files, inputs)?;
    let tables = handler.tables() + &handler.default_table();
    let text = format!("{HEADER}version = {}\n\n{tables}", schema.version);
    Ok((own_drop_in(dir), text))
}

fn own_drop_in(dir: &Path) -> PathBuf {
    dir.join(format!("{OWN_STEM}.toml"))
}
