//! Where this machine gets its Debian packages from.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::captured::Captured;

/// A release of the distribution, and where its packages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    /// Such as `bookworm`.
    pub(super) release: String,
    /// The address of the repository.
    pub(super) address: String,
}

/// One repository a line: release, component, address.
const FORMAT: &str = "$(RELEASE) $(COMPONENT) $(REPO_URI)";

impl Mirror {
    /// The repository that apt on this machine takes this machine's release
    /// from.
    pub(super) fn of_this_machine() -> Result<Self> {
        let release = release(&fs::read_to_string("/etc/os-release")?)
            .context("/etc/os-release has no VERSION_CODENAME")?;
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", FORMAT, "Identifier: Packages"]);
        let targets = Captured::run(&mut command)?.success()?.stdout;
        let address = address(&targets, &release)
            .with_context(|| format!("apt has no repository of {release}"))?;
        Ok(Self { release, address })
    }
}

/// The release's name in os-release(5).
fn release(text: &str) -> Option<String> {
    let values: HashMap<_, _> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let name = values.get("VERSION_CODENAME")?.trim_matches('"');
    Some(name.to_string())
}

fn address(targets: &str, release: &str) -> Option<String> {
    let mut targets = targets.lines().map(|line| line.split(' ').collect());
    targets.find_map(|target: Vec<_>| match target.as_slice() {
        [found, "main", address] if *found == release => Some((*address).to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_itself_is_taken_not_its_updates() {
        let targets = "forky-updates main http://mirror.invalid/debian/\n\
                       forky contrib http://other.invalid/debian/\n\
                       forky main http://mirror.invalid/debian/\n";
        let found = address(targets, "forky");
        assert_eq!(found.as_deref(), Some("http://mirror.invalid/debian/"));
        assert_eq!(address(targets, "sid"), None);
    }

    #[test]
    fn quotes_around_the_releases_name_are_dropped() {
        for text in [
            "ID=debian\nVERSION_CODENAME=forky\n",
            "VERSION_CODENAME=\"forky\"\n",
        ] {
            assert_eq!(release(text).as_deref(), Some("forky"), "{text}");
        }
    }
}
