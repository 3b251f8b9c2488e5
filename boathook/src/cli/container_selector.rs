//! The command-line arguments that tell `boathook doctor` which containers to examine.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[group(id = "whose", required = true, multiple = true)]
pub(crate) struct ContainerSelector {
    /// A container, by its name, its id, or the first characters of its id
    #[arg(value_name = "CONTAINER", conflicts_with_all = ["container", "pid", "pod", "bundle", "env", "device"])]
    name: Option<String>,
    /// The same
    #[arg(long, value_name = "ID", conflicts_with_all = ["pid", "pod", "bundle", "env", "device"])]
    container: Option<String>,
    /// A process of a container
    #[arg(long, value_name = "PID", conflicts_with_all = ["pod", "env"])]
    pub(crate) pid: Option<i32>,
    /// All containers of a pod on this node
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with_all = ["bundle", "env"])]
    pub(crate) pod: Option<String>,
    /// A bundle: the directory of a container's config.json
    #[arg(long, value_name = "DIR", conflicts_with = "env")]
    pub(crate) bundle: Option<PathBuf>,
    /// No container: what would one get that sets this variable?
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) env: Vec<String>,
    /// No container: what is a device of this name, as in `--device example.com/gpu=all`?
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "pod", "bundle", "env"])]
    pub(crate) device: Option<String>,
}

impl ContainerSelector {
    /// Returns the container's name or id, from the positional argument or from `--container`.
    pub(crate) fn id_or_name(&self) -> Option<&str> {
        self.name.as_deref().or(self.container.as_deref())
    }
}

pub(super) fn parse_variable(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write NAME=VALUE, such as DUMMY_VISIBLE_DEVICES=all".to_owned()),
    }
}
