//! `boathook-runtime`: an OCI runtime that executes the real runtime, such as runc. Before that, it
//! adds the hook to config.json if the container requests devices.

use std::process::ExitCode;

use hook::SingleThreadMemory;

#[global_allocator]
static MEMORY: SingleThreadMemory = SingleThreadMemory::new();

fn main() -> ExitCode {
    hook::runtime_main()
}
