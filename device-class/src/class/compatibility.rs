//! Names of another vendor's container toolkit under which Boathook can be installed, so that it
//! replaces that toolkit (`[compatibility]`).

use serde::Deserialize;

use crate::name::{ProgramName, RuntimeName, UnitName};

/// # `[compatibility]`
///
/// The names of a vendor's container toolkit that Boathook can replace. `boathook-init install --as
/// NAME` installs Boathook under these names too, so that commands and files that were written for
/// that toolkit keep working. Without `--as`, none of these names is installed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "compatibility"))]
pub struct Compatibility {
    /// The name by which `--as NAME` selects this table. Several classes may have the same name
    /// here.
    pub name: RuntimeName,
    /// Names of programs that Docker looks for in its PATH before it accepts `--gpus`, and that it
    /// calls as a hook. The installer creates them as links to Boathook's hook.
    #[serde(default)]
    pub hook_programs: Vec<ProgramName>,
    /// Names of runtime programs that Docker looks for in its PATH before it accepts `--gpus`. The
    /// installer creates them as links to `boathook-runtime`.
    #[serde(default)]
    pub runtime_programs: Vec<ProgramName>,
    /// Names of Docker's runtime (`docker run --runtime NAME`) and of the runtime handler of
    /// containerd and CRI-O (`runtimeClassName: NAME`).
    #[serde(default)]
    pub runtimes: Vec<RuntimeName>,
    /// Systemd units of the vendor's toolkit that write CDI specifications for the same device
    /// names as `boathook cdi generate`. `boathook check` reports these units where such names are
    /// used.
    #[serde(default)]
    pub cdi_services: Vec<UnitName>,
}
