//! `boathook`: the hook, and the commands for administrators.

use std::process::ExitCode;

use hook::ThreadAllocator;

/// Replaces the allocator of musl, which makes a system call for nearly every allocation and
/// release.
#[global_allocator]
static MEMORY: ThreadAllocator = ThreadAllocator;

fn main() -> ExitCode {
    hook::main()
}
