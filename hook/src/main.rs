//! `boathook`: the hook, and the commands for administrators.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// Replaces the allocator of musl, which makes a system call for nearly every allocation and
/// release.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::main()
}
