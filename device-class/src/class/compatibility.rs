//! The names of another vendor's container toolkit for the same devices, under which Boathook can
//! be installed.

use serde::Deserialize;

use crate::name::{ProgramName, RuntimeName, UnitName};

/// # `[compatibility]`
///
/// The names of a vendor's container toolkit, under which `boathook-init install --as NAME`
/// offers Boathook, so that commands and files that were written for that toolkit keep
/// working. No name is offered without the option.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "compatibility"))]
pub struct Compatibility {
    /// The name by which `--as NAME` selects this table. Several classes may have the same name.
    pub name: RuntimeName,
    /// Names of programs that Docker looks for in its PATH before it accepts `--gpus`, and
    /// calls as a hook. They become links to Boathook's hook.
    #[serde(default)]
    pub hook_programs: Vec<ProgramName>,
    /// Names of programs that Docker looks for in its PATH before it accepts `--gpus`, and
    /// that are runtimes. They become links to `boathook-runtime`.
    #[serde(default)]
    pub runtime_programs: Vec<ProgramName>,
    /// Names of the runtime (`docker run --runtime NAME`), and of the handler of containerd
    /// and CRI-O (`runtimeClassName: NAME`).
    #[serde(default)]
    pub runtimes: Vec<RuntimeName>,
    /// Units of systemd that write CDI specifications of the class's devices, with the names
    /// of `boathook cdi generate`. `boathook check` reports them where such names are used.
    #[serde(default)]
    pub cdi_services: Vec<UnitName>,
}
