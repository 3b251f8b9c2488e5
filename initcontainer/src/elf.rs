//! Reads the machine of a program from its ELF header (System V gABI, "ELF Header").

use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use rooted_path::open_regular_file;

/// The machine for which this program was built.
const HOST: &str = std::env::consts::ARCH;

/// Rust's names of machines, by the value of `e_machine`.
const MACHINES: &[(u16, &str)] = &[
    (3, "x86"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

/// Returns an error if a program was built for another machine.
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
    let name = MACHINES.iter().find(|(number, _)| *number == machine);
    if name.is_some_and(|(_, name)| *name == HOST) {
        return Ok(());
    }
    let found = name.map_or_else(
        || format!("machine {machine}"),
        |(_, name)| (*name).to_owned(),
    );
    Err(anyhow!(
        "{} is a program for {found}, but this host is {HOST}; use the image or archive for {HOST}",
        path.display()
    ))
}

/// Returns the message for a file of a payload that is refused.
pub(crate) fn describe_refusal(path: &Path, problem: &str) -> String {
    format!(
        "{} cannot be installed: {problem}; use the image or archive of this release",
        path.display()
    )
}
