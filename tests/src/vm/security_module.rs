//! The Linux security modules of virtual machines, and the systems that have their policies.

use anyhow::Result;

use crate::mirror::Mirror;

/// The packages of every root file system: systemd, the guest agent, engines, and programs that use
/// devices in containers.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,kmod,qemu-guest-agent,runc,crun,\
                        containerd,docker.io,podman,conmon,containernetworking-plugins,netavark,\
                        aardvark-dns,iproute2,iptables,apparmor,uidmap,slirp4netns,fuse-overlayfs,\
                        fuse3,rdma-core,ibverbs-utils,ibverbs-providers,rdmacm-utils,usbutils,\
                        pciutils,ca-certificates,busybox-static";
/// The packages that are added for SELinux. Debian 13 has Docker's command line in a package of its
/// own, which debootstrap does not install with the daemon.
const SELINUX_PACKAGES: &str = "docker-cli,selinux-policy-default,policycoreutils,selinux-utils,\
                                auditd,procps";

/// The commands that are run after the packages are installed. Docker is not started at boot, but
/// when a program connects to its socket (docker.socket).
const FINISH: &str = "rm /etc/systemd/system/multi-user.target.wants/docker.service
                      rm -rf /var/cache/apt/archives /var/lib/apt/lists";
/// The commands that have Docker label its containers, as podman does by default, and that label
/// all files. They work without a kernel with SELinux.
const LABEL: &str = r#"mkdir -p /etc/docker; echo '{"selinux-enabled": true}' >/etc/docker/daemon.json
                       setfiles -F /etc/selinux/default/contexts/files/file_contexts /"#;

/// The security module by which the kernel of a machine confines programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityModule {
    /// AppArmor, in this machine's release of Debian. It is Debian's default.
    AppArmor,
    /// SELinux, enforcing, in Debian 13, the first release whose policy confines containers.
    Selinux,
}

impl SecurityModule {
    /// Returns the options of the kernel's command line.
    pub(super) fn command_line(self) -> &'static str {
        match self {
            Self::AppArmor => "",
            Self::Selinux => "security=selinux selinux=1 enforcing=1",
        }
    }

    /// Returns the program, with its first arguments, that runs lines of a shell as an
    /// administrator who has logged in.
    pub(super) fn shell(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::AppArmor => ("/bin/bash", &[]),
            Self::Selinux => (
                "/usr/bin/runcon",
                &[
                    "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023",
                    "/bin/bash",
                ],
            ),
        }
    }

    /// Returns the repository with the packages.
    pub(super) fn mirror(self) -> Result<Mirror> {
        match self {
            Self::AppArmor => Mirror::of_this_machine(),
            Self::Selinux => Mirror::of_debian_trixie(),
        }
    }

    /// Returns the names of the packages, separated by commas.
    pub(super) fn packages(self) -> String {
        match self {
            Self::AppArmor => PACKAGES.to_owned(),
            Self::Selinux => format!("{PACKAGES},{SELINUX_PACKAGES}"),
        }
    }

    /// Returns the commands that are run when the packages are installed.
    pub(super) fn finish(self) -> String {
        match self {
            Self::AppArmor => FINISH.to_owned(),
            Self::Selinux => format!("{FINISH}\n{LABEL}"),
        }
    }

    /// Returns the name of the root file system.
    pub(super) fn root_name(self) -> &'static str {
        match self {
            Self::AppArmor => "vm",
            Self::Selinux => "vm-selinux",
        }
    }
}
