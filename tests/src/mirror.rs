//! Finds the repositories of distributions, and builds root file systems from their packages.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// A release of a distribution, and the repository with its packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// The name of the release, such as `bookworm`.
    pub(crate) release: String,
    /// The address of the repository. `None` means the one that debootstrap knows.
    pub(crate) address: Option<String>,
    /// The parts of the repository that are needed.
    pub(crate) components: &'static str,
    /// The file with the keys by which the repository must be signed. `None` means the machine's
    /// own keys.
    pub(crate) keyring: Option<PathBuf>,
    /// The script by which debootstrap installs the release. `None` means the script with the name
    /// of the release.
    pub(crate) script: Option<&'static str>,
}

/// The path of the program that builds root file systems (Debian's package debootstrap).
const DEBOOTSTRAP: &str = "/usr/sbin/debootstrap";
/// The format in which apt lists its repositories: one on each line, with release, component and
/// address.
const FORMAT: &str = "$(RELEASE) $(COMPONENT) $(REPO_URI)";

/// Returns the reason why root file systems cannot be made here, or `None` if they can.
pub(crate) fn missing() -> Option<String> {
    [(DEBOOTSTRAP, "debootstrap"), ("/usr/bin/apt-get", "apt")]
        .into_iter()
        .find(|(program, _)| !Path::new(program).is_file())
        .map(|(program, package)| format!("needs {program} (package {package})"))
}

impl Mirror {
    /// Returns the repository from which apt on this machine takes this machine's release.
    pub(crate) fn of_this_machine() -> Result<Self> {
        let release = release(&fs::read_to_string("/etc/os-release")?)
            .context("/etc/os-release has no VERSION_CODENAME")?;
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", FORMAT, "Identifier: Packages"]);
        let targets = Captured::run(&mut command)?.success()?.stdout;
        let address = address(&targets, &release)
            .with_context(|| format!("apt has no repository of {release}"))?;
        Ok(Self {
            release,
            address: Some(address),
            components: "main",
            keyring: None,
            script: None,
        })
    }

    /// Returns the address of a repository with all releases of Debian. On a machine with Debian
    /// this is the repository that its apt uses.
    pub(crate) fn address_of_debian() -> Result<String> {
        let is_debian = |line: &str| line == "ID=debian";
        let here = fs::read_to_string("/etc/os-release")?;
        let own = here.lines().any(is_debian).then(Self::of_this_machine);
        let own = own.transpose()?.and_then(|mirror| mirror.address);
        Ok(own.unwrap_or_else(|| "http://deb.debian.org/debian".to_string()))
    }

    /// Returns the repository of Debian's next release, at the address from which apt takes this
    /// machine's release. This machine must have Debian.
    pub(crate) fn of_debian_forky() -> Result<Self> {
        let here = Self::of_this_machine()?;
        Ok(Self {
            release: "forky".to_string(),
            // Older versions of debootstrap do not have scripts with the names of later releases.
            script: Some("/usr/share/debootstrap/scripts/sid"),
            ..here
        })
    }

    /// Returns the repository of Debian 13, at the address of [`Self::address_of_debian`].
    pub(crate) fn of_debian_trixie() -> Result<Self> {
        Ok(Self {
            release: "trixie".to_string(),
            address: Some(Self::address_of_debian()?),
            components: "main",
            keyring: None,
            script: None,
        })
    }

    /// Returns the repository of Ubuntu 18.04. Its key is among the tests' files, because Debian
    /// has no package with it.
    pub(crate) fn of_ubuntu_18_04() -> Self {
        Self {
            release: "bionic".to_string(),
            address: None,
            components: "main,universe",
            // "Ubuntu Archive Automatic Signing Key (2012)", with the
            // fingerprint 790BC7277767219C42C86F933B4FE6ACC0B21F32.
            keyring: Some(binaries::source_tree().join("tests/keys/ubuntu-archive-2012.gpg")),
            script: None,
        }
    }

    /// Returns the repository of a release of Ubuntu after 18.04. Its key is among the tests'
    /// files. The key comes from the package ubuntu-keyring of Ubuntu 20.04, whose repository is
    /// signed by both keys.
    pub(crate) fn of_ubuntu(release: &str) -> Self {
        Self {
            release: release.to_string(),
            address: Some("http://archive.ubuntu.com/ubuntu".to_string()),
            components: "main,universe",
            // "Ubuntu Archive Automatic Signing Key (2018)", with the
            // fingerprint F6ECB3762474EDA9D21B7022871920D1991BC93C.
            keyring: Some(binaries::source_tree().join("tests/keys/ubuntu-archive-2018.gpg")),
            // This script is the same for all releases of Ubuntu. Older versions of debootstrap do
            // not have scripts with the names of later releases.
            script: Some("/usr/share/debootstrap/scripts/gutsy"),
        }
    }

    /// Builds a minimal root file system with these packages in `directory`.
    pub(crate) fn fetch(&self, packages: &str, directory: &Path) -> Result<()> {
        self.debootstrap(&[], packages, directory)
    }

    /// Unpacks a root file system for an architecture whose programs this machine cannot run. The
    /// packages are installed when `/debootstrap/debootstrap --second-stage` is run in it.
    pub(crate) fn unpack(&self, packages: &str, arch: &str, directory: &Path) -> Result<()> {
        self.debootstrap(&["--foreign", "--arch", arch], packages, directory)
    }

    fn debootstrap(&self, options: &[&str], packages: &str, directory: &Path) -> Result<()> {
        let mut command = Command::new(DEBOOTSTRAP);
        command.args(options);
        if let Some(keyring) = &self.keyring {
            command
                .arg("--force-check-gpg")
                .arg("--keyring")
                .arg(keyring);
        }
        command
            .args(["--variant=minbase", "--include", packages])
            .args(["--components", self.components])
            .arg(&self.release)
            .arg(directory)
            .args(&self.address)
            .args(self.script)
            // This configuration limits the time that wget waits. By default it waits 15 minutes
            // for each of 20 attempts.
            .env("WGETRC", binaries::source_tree().join("tests/wgetrc"))
            .env("LC_ALL", "C");
        let made = Captured::run(&mut command)?.success();
        made.with_context(|| {
            let from = self.address.as_deref().unwrap_or("its usual repository");
            format!(
                "cannot make a root file system of {} from {from}",
                self.release
            )
        })
        .map(drop)
    }

    /// Installs the version of a package from the release's updates.
    pub(crate) fn add_updated(&self, package: &str, directory: &Path) -> Result<()> {
        let release = &self.release;
        let sources = directory.join("etc/apt/sources.list");
        let used = fs::read_to_string(&sources)?;
        let updates = used.replace(&format!(" {release} "), &format!(" {release}-updates "));
        fs::write(&sources, updates)?;
        for arguments in [
            &["update"][..],
            &["install", "--yes", "--no-install-recommends", package],
        ] {
            let mut command = Command::new("chroot");
            command.arg(directory).arg("apt-get").args(arguments);
            let ran = Captured::run(command.env("LC_ALL", "C"))?.success();
            ran.with_context(|| format!("cannot add {package} to {release}"))?;
        }
        Ok(())
    }
}

/// Returns the name of the release in the text of /etc/os-release (os-release(5)).
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
