//! The command-line arguments of `attach`, `detach` and `refresh`. These commands change running
//! containers.

use std::path::PathBuf;

use clap::Args;
use hook::oci::CdiGrant;

#[derive(Debug, Args)]
pub(crate) struct RunningContainer {
    /// The container, by its id, its name, or the first characters of its id
    #[arg(value_name = "CONTAINER")]
    pub(crate) id_or_name: String,
    /// The state directory of the runtime, if it is not the default (`runc --root DIR`)
    #[arg(long = "root", value_name = "DIR")]
    pub(crate) state_root: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    #[command(flatten)]
    pub(crate) container: RunningContainer,
    /// Devices by id, index or alias, such as dummy-npu=3
    #[arg(required = true, value_name = "CLASS=DEVICE", value_parser = CdiGrant::parse_user_device)]
    pub(crate) devices: Vec<CdiGrant>,
    /// Only print what would be done
    #[arg(long = "dry-run")]
    pub(crate) is_dry_run: bool,
    /// In a pod: also devices that the kubelet did not allocate to it
    #[arg(long = "force")]
    pub(crate) is_forced: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RefreshArguments {
    #[command(flatten)]
    pub(crate) container: RunningContainer,
    /// Only print what would be done
    #[arg(long = "dry-run")]
    pub(crate) is_dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DetachArguments {
    #[command(flatten)]
    pub(crate) container: RunningContainer,
    /// The devices; without, all that were attached
    #[arg(value_name = "CLASS=DEVICE", value_parser = CdiGrant::parse_user_device)]
    pub(crate) devices: Vec<CdiGrant>,
}
