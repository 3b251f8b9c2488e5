//! `boathook-runtime`: an OCI runtime that adds the hook to a container that requests devices,
//! and then executes the real runtime.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// Replaces the allocator of musl, for the same reason as in `main.rs`: it makes a system call
/// for nearly every allocation.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::runtime_main()
}
