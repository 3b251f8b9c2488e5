//! Repositories of packages, and root file systems that are made from them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// A release of a distribution, and where its packages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// Such as `bookworm`.
    pub(crate) release: String,
    /// The address of the repository, if not the one that debootstrap knows.
    pub(crate) address: Option<String>,
    /// The parts of the repository that are needed.
    pub(crate) components: &'static str,
    /// The keys that it must be signed with, if not the machine's own.
    pub(crate) keyring: Option<PathBuf>,
    /// How debootstrap installs the release, if it does not know its name.
    pub(crate) script: Option<&'static str>,
}

/// The program that makes root file systems (Debian's package debootstrap).
const DEBOOTSTRAP: &str = "/usr/sbin/debootstrap";
/// One repository a line: release, component, address.
const FORMAT: &str = "$(RELEASE) $(COMPONENT) $(REPO_URI)";

/// Returns the reason why root file systems cannot be made here, or `None` if they can.
pub(crate) fn missing() -> Option<String> {
    [(DEBOOTSTRAP, "debootstrap"), ("/usr/bin/apt-get", "apt")]
        .into_iter()
        .find(|(program, _)| !Path::new(program).is_file())
        .map(|(program, package)| format!("needs {program} (package {package})"))
}

impl Mirror {
    /// The repository that apt on this machine takes this machine's release
    /// from.
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

    /// Where Debian's releases are: for a machine of Debian where its apt takes its own.
    pub(crate) fn address_of_debian() -> Result<String> {
        let is_debian = |line: &str| line == "ID=debian";
        let here = fs::read_to_string("/etc/os-release")?;
        let own = here.lines().any(is_debian).then(Self::of_this_machine);
        let own = own.transpose()?.and_then(|mirror| mirror.address);
        Ok(own.unwrap_or_else(|| "http://deb.debian.org/debian".to_string()))
    }

    /// Debian's next release, from where apt on this machine takes this machine's
    /// release, which must be one of Debian.
    pub(crate) fn of_debian_forky() -> Result<Self> {
        let here = Self::of_this_machine()?;
        Ok(Self {
            release: "forky".to_string(),
            // Older versions of debootstrap know the name of no later release.
            script: Some("/usr/share/debootstrap/scripts/sid"),
            ..here
        })
    }

    /// Ubuntu's repository of 18.04. Debian has no package with its key, so that
    /// is among the tests' files.
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

    /// Ubuntu's repository of a release since 18.04, with its key among the tests' files:
    /// it is in the package ubuntu-keyring of Ubuntu 20.04, whose repository both keys
    /// have signed.
    pub(crate) fn of_ubuntu(release: &str) -> Self {
        Self {
            release: release.to_string(),
            address: Some("http://archive.ubuntu.com/ubuntu".to_string()),
            components: "main,universe",
            // "Ubuntu Archive Automatic Signing Key (2018)", with the
            // fingerprint F6ECB3762474EDA9D21B7022871920D1991BC93C.
            keyring: Some(binaries::source_tree().join("tests/keys/ubuntu-archive-2018.gpg")),
            // That of all releases of Ubuntu; older versions of debootstrap know the
            // name of no later release.
            script: Some("/usr/share/debootstrap/scripts/gutsy"),
        }
    }

    /// Makes a minimal root file system with these packages.
    pub(crate) fn fetch(&self, packages: &str, directory: &Path) -> Result<()> {
        self.debootstrap(&[], packages, directory)
    }

    /// The same for an architecture of Debian whose programs this machine cannot run: the
    /// packages are unpacked or lie there until `/debootstrap/debootstrap --second-stage`
    /// installs them.
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
            // Without it wget waits 15 minutes for each of 20 answers.
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

    /// Adds a package as the release's updates have it.
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
