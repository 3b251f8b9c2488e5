//! Declares the command-line arguments of `boathook log`, which prints what hooks have reported on
//! this node.

use clap::Args;
use hook::log::parse_since;

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Only messages about a container, by its id, its name, or the first characters of its id
    #[arg(long, value_name = "CONTAINER")]
    pub(crate) container: Option<String>,
    /// Only messages since a time or within a span, such as 2026-11-28, 30s, 10m, 2h or 3d
    #[arg(long = "since", value_name = "TIME", value_parser = parse_since)]
    pub(crate) min_time: Option<String>,
    /// Keep printing new messages until interrupted
    #[arg(short = 'f', long = "follow")]
    pub(crate) should_follow: bool,
}
