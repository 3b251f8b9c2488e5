//! Configures containerd, and the distributions that contain their own containerd.
//!
//! The layout of the configuration decides which files are changed:
//!
//! - **Configuration version 3** (containerd 2): a drop-in is written, because imported files are
//!   merged key by key. If the main file does not import the drop-in yet, the path of the drop-in
//!   is added to its list of imports. Otherwise the main file is not changed.
//! - **Configuration version 2** (containerd 1.x, or a 2.x that reads an old file): the tables are
//!   added to the file itself. In 1.x an imported file *replaces* the whole section of a plugin. A
//!   drop-in would therefore need a copy of the whole CRI section, and the copy would hide each
//!   later change by the user. For the same reason, the tables are added to the last imported file
//!   that has a CRI section: the sections of earlier files have no effect.
//! - **k3s and rke2** generate containerd's file at each start. If the generated file imports a
//!   drop-in directory, a drop-in is written. Otherwise the template is changed.
//! - **k0s** has a drop-in directory, and merges the CRI sections of the drop-ins itself.

mod default_runtime;
mod documents;
mod file;
mod handler;
mod in_place;
mod schema;
mod template;

use std::path::{Path, PathBuf};

use crate::drop_in::{self, DROP_IN_HEADER};
use crate::error::Error;
use crate::host::HostRoot;
use crate::options::InstallOptions;
use crate::snapshot::Snapshot;
use crate::toml_text::BOATHOOK_FILE_STEM;
use handler::Handler;
use schema::{SCHEMA_V2, Schema};

pub(crate) use default_runtime::find_default_runtime;

/// The layout of containerd's configuration files. Distributions have different layouts.
#[derive(Debug)]
pub(crate) enum Layout {
    /// A main file that the administrator edits, such as `/etc/containerd/config.toml`.
    File {
        main_path: &'static str,
        /// The default drop-in directory, if the distribution has one.
        conf_d_dir: Option<&'static str>,
    },
    /// A directory of k3s or rke2. It contains the main file, which the distribution generates at
    /// each start, the template of that file, and drop-ins.
    Template { dir: &'static str },
    /// A directory of drop-ins (k0s). k0s merges the drop-ins itself, whatever their configuration
    /// version is.
    DropIns {
        dir: &'static str,
        /// The generated files, which contain the configuration version and the default handler.
        /// They may not exist.
        generated_paths: [&'static str; 2],
    },
}

pub(crate) const CONTAINERD_LAYOUT: Layout = Layout::File {
    main_path: "/etc/containerd/config.toml",
    conf_d_dir: Some("/etc/containerd/conf.d"),
};
pub(crate) const MICROK8S_LAYOUT: Layout = Layout::File {
    main_path: "/var/snap/microk8s/current/args/containerd-template.toml",
    conf_d_dir: None,
};
pub(crate) const K3S_LAYOUT: Layout = Layout::Template {
    dir: "/var/lib/rancher/k3s/agent/etc/containerd",
};
pub(crate) const RKE2_LAYOUT: Layout = Layout::Template {
    dir: "/var/lib/rancher/rke2/agent/etc/containerd",
};
pub(crate) const K0S_LAYOUT: Layout = Layout::DropIns {
    dir: "/etc/k0s/containerd.d",
    generated_paths: ["/etc/k0s/containerd.toml", "/run/k0s/containerd-cri.toml"],
};

impl Layout {
    /// Returns the path of the OCI specification that the handler's `base_runtime_spec` names. It
    /// is in the directory of containerd's configuration file.
    fn base_spec_path(&self) -> PathBuf {
        let config_path = match self {
            Self::File { main_path, .. } => Path::new(main_path),
            Self::Template { dir } => &template::generated_config_path(dir),
            Self::DropIns {
                generated_paths, ..
            } => Path::new(generated_paths[0]),
        };
        config_path.with_file_name(format!("{BOATHOOK_FILE_STEM}.json"))
    }
}

/// Reads into the snapshot all files on which a plan for this layout depends.
pub(crate) fn read_config_files(
    layout: &Layout,
    host: &HostRoot,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    snapshot.read(host, &layout.base_spec_path())?;
    match layout {
        Layout::File {
            main_path,
            conf_d_dir,
        } => {
            if let Some(dir) = conf_d_dir {
                snapshot.read(host, &boathook_drop_in_path(Path::new(dir)))?;
                drop_in::read_drop_ins(host, Path::new(dir), ".toml", snapshot)?;
            }
            documents::read_file_and_imports(host, Path::new(main_path), snapshot)
        }
        Layout::Template { dir } => {
            for path in template::writable_paths(dir) {
                snapshot.read(host, &path)?;
            }
            snapshot.mark_generated(&template::generated_config_path(dir));
            documents::read_file_and_imports(host, &template::generated_config_path(dir), snapshot)
        }
        Layout::DropIns {
            dir,
            generated_paths,
        } => {
            snapshot.read(host, &boathook_drop_in_path(Path::new(dir)))?;
            drop_in::read_drop_ins(host, Path::new(dir), ".toml", snapshot)?;
            for file in generated_paths.map(Path::new) {
                snapshot.mark_generated(file);
                documents::read_file_and_imports(host, file, snapshot)?;
            }
            Ok(())
        }
    }
}

/// The inputs from which the files of an installation are planned. `snapshot` shows the host as it
/// would be without Boathook.
#[derive(Debug)]
struct PlanInputs<'a> {
    snapshot: &'a Snapshot,
    options: &'a InstallOptions,
    base_spec_path: PathBuf,
}

/// Returns the path and the text of each file that an installation writes, in the order in which
/// they are written.
pub(crate) fn plan_files(
    layout: &Layout,
    snapshot: &Snapshot,
    options: &InstallOptions,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let base_spec_path = layout.base_spec_path();
    let mut files = Vec::new();
    if let Some(spec) = &options.base_spec {
        files.push((
            base_spec_path.clone(),
            handler::add_hook_to_spec(spec, options)?,
        ));
    }
    let inputs = PlanInputs {
        snapshot,
        options,
        base_spec_path,
    };
    files.extend(match layout {
        Layout::File {
            main_path,
            conf_d_dir,
        } => file::plan_files(Path::new(main_path), conf_d_dir.map(Path::new), &inputs)?,
        Layout::Template { dir } => vec![template::plan_files(dir, &inputs)?],
        Layout::DropIns {
            dir,
            generated_paths,
        } => {
            let mut config_paths = Vec::new();
            for file in generated_paths {
                config_paths.extend(documents::list_files_in_load_order(
                    snapshot,
                    Path::new(file),
                )?);
            }
            let schema = schema::detect_schema(snapshot, Path::new(generated_paths[0]))?
                .unwrap_or(&SCHEMA_V2);
            handler::refuse_existing_handlers(schema, &config_paths, &inputs)?;
            vec![build_drop_in(
                Path::new(dir),
                schema,
                &config_paths,
                &inputs,
            )?]
        }
    });
    Ok(files)
}

/// Returns the path and the text of Boathook's drop-in in the directory `dir`, whose name is
/// `99-boathook.toml`.
fn build_drop_in(
    dir: &Path,
    schema: &Schema,
    config_paths: &[PathBuf],
    inputs: &PlanInputs<'_>,
) -> Result<(PathBuf, String), Error> {
    let handler = Handler::new(schema, config_paths, inputs)?;
    let tables = handler.format_tables() + &handler.format_default_table();
    let text = format!("{DROP_IN_HEADER}version = {}\n\n{tables}", schema.version);
    Ok((boathook_drop_in_path(dir), text))
}

fn boathook_drop_in_path(dir: &Path) -> PathBuf {
    dir.join(format!("{BOATHOOK_FILE_STEM}.toml"))
}
