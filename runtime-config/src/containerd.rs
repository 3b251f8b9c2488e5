//! Configures containerd, and the distributions that contain their own containerd.
//!
//! The layout of the configuration decides which files are changed:
//!
//! - **Configuration version 3** (containerd 2): a drop-in is written, because imported files
//!   are merged key by key. If the main file does not import the drop-in yet, the drop-in's path
//!   is added to its list of imports. Otherwise the main file is not changed.
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
use crate::toml_text::OWN_FILE_STEM;
use handler::Handler;
use schema::{Schema, V2};

pub(crate) use default_runtime::find_default_runtime;

/// The layout of containerd's configuration files, which differs between distributions.
#[derive(Debug)]
pub(crate) enum Layout {
    /// A main file that the administrator edits.
    File {
        main_file: &'static str,
        /// The usual drop-in directory beside the main file, if the distribution has one.
        conf_d: Option<&'static str>,
    },
    /// A directory with a file that is generated at each start, its template, and drop-ins.
    Template { dir: &'static str },
    /// A directory of drop-ins, which the distribution merges whatever their version is.
    DropIns {
        dir: &'static str,
        /// The generated files that contain the version and the default handler. They may be
        /// missing.
        generated_files: [&'static str; 2],
    },
}

pub(crate) const CONTAINERD_LAYOUT: Layout = Layout::File {
    main_file: "/etc/containerd/config.toml",
    conf_d: Some("/etc/containerd/conf.d"),
};
pub(crate) const MICROK8S_LAYOUT: Layout = Layout::File {
    main_file: "/var/snap/microk8s/current/args/containerd-template.toml",
    conf_d: None,
};
pub(crate) const K3S_LAYOUT: Layout = Layout::Template {
    dir: "/var/lib/rancher/k3s/agent/etc/containerd",
};
pub(crate) const RKE2_LAYOUT: Layout = Layout::Template {
    dir: "/var/lib/rancher/rke2/agent/etc/containerd",
};
pub(crate) const K0S_LAYOUT: Layout = Layout::DropIns {
    dir: "/etc/k0s/containerd.d",
    generated_files: ["/etc/k0s/containerd.toml", "/run/k0s/containerd-cri.toml"],
};

impl Layout {
    /// Returns the path of the OCI specification to which the handler's `base_runtime_spec` is set.
    /// The file is beside containerd's configuration.
    fn base_spec_path(&self) -> PathBuf {
        let config_file = match self {
            Self::File { main_file, .. } => Path::new(main_file),
            Self::Template { dir } => &template::generated_path(dir),
            Self::DropIns {
                generated_files, ..
            } => Path::new(generated_files[0]),
        };
        config_file.with_file_name(format!("{OWN_FILE_STEM}.json"))
    }
}

/// Reads all files on which a plan for this layout depends into the snapshot.
pub(crate) fn read_files(
    layout: &Layout,
    host: &HostRoot,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    snapshot.read(host, &layout.base_spec_path())?;
    match layout {
        Layout::File { main_file, conf_d } => {
            if let Some(dir) = conf_d {
                snapshot.read(host, &own_drop_in_path(Path::new(dir)))?;
                drop_in::read_dir(host, Path::new(dir), ".toml", snapshot)?;
            }
            documents::read_with_imports(host, Path::new(main_file), snapshot)
        }
        Layout::Template { dir } => {
            for path in template::writable_paths(dir) {
                snapshot.read(host, &path)?;
            }
            snapshot.mark_generated(&template::generated_path(dir));
            documents::read_with_imports(host, &template::generated_path(dir), snapshot)
        }
        Layout::DropIns {
            dir,
            generated_files,
        } => {
            snapshot.read(host, &own_drop_in_path(Path::new(dir)))?;
            drop_in::read_dir(host, Path::new(dir), ".toml", snapshot)?;
            for file in generated_files.map(Path::new) {
                snapshot.mark_generated(file);
                documents::read_with_imports(host, file, snapshot)?;
            }
            Ok(())
        }
    }
}

/// The inputs from which the files of an installation are planned. The snapshot is that of a host
/// without Boathook.
#[derive(Debug)]
struct PlanInputs<'a> {
    snapshot: &'a Snapshot,
    options: &'a Options,
    /// The path of the OCI specification to which the handler's `base_runtime_spec` is set.
    spec_path: PathBuf,
}

/// Returns the files that an installation writes, each as its path and text.
pub(crate) fn plan_files(
    layout: &Layout,
    snapshot: &Snapshot,
    options: &Options,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let spec_path = layout.base_spec_path();
    let mut files = Vec::new();
    if let Some(spec) = &options.base_spec {
        files.push((spec_path.clone(), handler::add_hook_to_spec(spec, options)?));
    }
    let inputs = PlanInputs {
        snapshot,
        options,
        spec_path,
    };
    files.extend(match layout {
        Layout::File { main_file, conf_d } => {
            file::plan_files(Path::new(main_file), conf_d.map(Path::new), &inputs)?
        }
        Layout::Template { dir } => vec![template::plan_files(dir, &inputs)?],
        Layout::DropIns {
            dir,
            generated_files,
        } => {
            let mut config_files = Vec::new();
            for file in generated_files {
                config_files.extend(documents::list_in_load_order(snapshot, Path::new(file))?);
            }
            let schema =
                schema::detect_schema(snapshot, Path::new(generated_files[0]))?.unwrap_or(&V2);
            handler::refuse_existing_handlers(schema, &config_files, &inputs)?;
            vec![build_drop_in(
                Path::new(dir),
                schema,
                &config_files,
                &inputs,
            )?]
        }
    });
    Ok(files)
}

/// Returns the path of Boathook's drop-in in the directory `dir`, and the text of the drop-in.
fn build_drop_in(
    dir: &Path,
    schema: &Schema,
    config_files: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(PathBuf, String), Error> {
    let handler = Handler::new(schema, config_files, inputs)?;
    let tables = handler.format_tables() + &handler.format_default_table();
    let text = format!("{HEADER}version = {}\n\n{tables}", schema.version);
    Ok((own_drop_in_path(dir), text))
}

fn own_drop_in_path(dir: &Path) -> PathBuf {
    dir.join(format!("{OWN_FILE_STEM}.toml"))
}
