//! Checks that programs are built for this machine, by their ELF headers (System V gABI, "ELF
//! Header").

use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use rooted_path::open_regular_file;

/// The architecture of this program, and so of this machine.
const HOST_ARCHITECTURE: &str = std::env::consts::ARCH;

/// Rust's names of architectures, by the value of `e_machine`.
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

/// Returns an error if a program was built for another architecture.
pub fn check_machine(path: &Path) -> Result<()> {
    let mut head = [0_u8; 20];
    let read = open_regular_file(path).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            bail!(describe_refusal(path, "it is too short to be a program"));
        }
        read => read.map_err(runtime_config::Error::io("read", path))?,
    }
    ensure!(
        head.starts_with(b"\x7fELF"),
        describe_refusal(path, "it is no ELF program")
    );
    // The byte EI_DATA is 1 for little-endian and 2 for big-endian files.
    let machine = match head[5] {
        1 => u16::from_le_bytes([head[18], head[19]]),
        2 => u16::from_be_bytes([head[18], head[19]]),
        _ => bail!(describe_refusal(path, "its byte order is unknown")),
    };
    let name = ARCHITECTURES.iter().find(|(number, _)| *number == machine);
    if name.is_some_and(|(_, name)| *name == HOST_ARCHITECTURE) {
        return Ok(());
    }
    let found = name.map_or_else(
        || format!("machine {machine}"),
        |(_, name)| (*name).to_owned(),
    );
    Err(anyhow!(
        "{} is a program for {found}, but this host is {HOST_ARCHITECTURE}; use the image or archive for {HOST_ARCHITECTURE}",
        path.display()
    ))
}

/// Builds the message about a refused file of a payload.
pub(crate) fn describe_refusal(path: &Path, problem: &str) -> String {
    format!(
        "{} cannot be installed: {problem}; use the image or archive of this release",
        path.display()
    )
}
