//! The part of ELF that names the machine a program is for (System V gABI,
//! "ELF Header").

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// The machine that this program was built for, and so runs on.
const HOST: &str = std::env::consts::ARCH;

/// Machines by their `e_machine`, in Rust's names.
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

/// Checks that a program is for this machine.
pub fn check(path: &Path) -> Result<(), Error> {
    let mut head = [0_u8; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    let unfit = |problem: &str| Error::Payload {
        path: path.into(),
        problem: problem.into(),
    };
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(unfit("it is too short to be a program"));
        }
        Err(e) => return Err(runtime_config::Error::io("read", path)(e).into()),
        Ok(()) => {}
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(unfit("it is no ELF program"));
    }
    // EI_DATA: 1 is little-endian, 2 big-endian.
    let machine = match head[5] {
        1 => u16::from_le_bytes([head[18], head[19]]),
        2 => u16::from_be_bytes([head[18], head[19]]),
        _ => return Err(unfit("its byte order is unknown")),
    };
    let name = MACHINES.iter().find(|(number, _)| *number == machine);
    if name.is_some_and(|(_, name)| *name == HOST) {
        return Ok(());
    }
    let found = name.map_or_else(
        || format!("machine {machine}"),
        |(_, name)| (*name).to_owned(),
    );
    Err(Error::Architecture {
        path: path.into(),
        found,
        host: HOST,
    })
}
