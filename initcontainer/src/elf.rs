//! Checks that programs are built for this machine. Reads the architecture from their ELF headers
//! (System V gABI, "ELF Header").

use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use host_files::rooted_path::open_regular_file;

/// The architecture of this program, which is also the architecture of this machine.
const HOST_ARCHITECTURE: &str = std::env::consts::ARCH;

/// The values of `e_machine` in the ELF header, each with Rust's name for the architecture.
const ARCHITECTURES: &[(u16, &str)] = &[
    (3, "x86"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

/// Returns an error unless the file at `path` is an ELF program for the architecture of this
/// machine. An engine could not execute any other file (ENOEXEC).
pub fn check_elf_architecture(path: &Path) -> Result<()> {
    let mut header = [0_u8; 20];
    let result = open_regular_file(path).and_then(|mut file| file.read_exact(&mut header));
    match result {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            bail!(describe_unusable_file(
                path,
                "it is too short to be a program"
            ));
        }
        result => result.map_err(runtime_config::Error::io("read", path))?,
    }
    ensure!(
        header.starts_with(b"\x7fELF"),
        describe_unusable_file(path, "it is no ELF program")
    );
    // The byte EI_DATA is 1 for little-endian and 2 for big-endian files.
    let machine = match header[5] {
        1 => u16::from_le_bytes([header[18], header[19]]),
        2 => u16::from_be_bytes([header[18], header[19]]),
        _ => bail!(describe_unusable_file(path, "its byte order is unknown")),
    };
    let known_machine = ARCHITECTURES.iter().find(|(number, _)| *number == machine);
    if known_machine.is_some_and(|(_, name)| *name == HOST_ARCHITECTURE) {
        return Ok(());
    }
    let architecture = known_machine.map_or_else(
        || format!("machine {machine}"),
        |(_, name)| (*name).to_owned(),
    );
    Err(anyhow!(
        "{} is a program for {architecture}, but this host is {HOST_ARCHITECTURE}; use the image or archive for {HOST_ARCHITECTURE}",
        path.display()
    ))
}

/// Returns the error message for a file of a release that cannot be installed. `problem` is the
/// reason, such as `it is no ELF program`.
pub(crate) fn describe_unusable_file(path: &Path, problem: &str) -> String {
    format!(
        "{} cannot be installed: {problem}; use the image or archive of this release",
        path.display()
    )
}
