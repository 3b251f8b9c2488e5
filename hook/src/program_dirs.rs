//! Where the programs of engines lie.

/// Where distributions and installers put programs (file-hierarchy(7), and
/// what k3s, rke2, k0s and snaps add).
pub(crate) const PROGRAM_DIRECTORIES: [&str; 11] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/bin",
    "/snap/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
    "/var/lib/k0s/bin",
];
