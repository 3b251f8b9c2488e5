//! `boathook-runtime`: an OCI runtime that adds the hook to a container that requests devices,
//! and then executes the real runtime.

use std::process::ExitCode;

use hook::ThreadAllocator;

/// Replaces the allocator of musl, which makes a system call for nearly every allocation and
/// release.
#[global_allocator]
static MEMORY: ThreadAllocator = ThreadAllocator;

fn main() -> ExitCode {
    hook::runtime_main()
}
