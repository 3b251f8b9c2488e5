//! `boathook-hook`: the OCI hook, which container runtimes call at the start of each container.

use std::process::ExitCode;

use hook::ThreadAllocator;

/// Replaces the allocator of musl, which makes a system call for nearly every allocation and
/// release.
#[global_allocator]
static MEMORY: ThreadAllocator = ThreadAllocator;

fn main() -> ExitCode {
    hook::hook_main()
}
