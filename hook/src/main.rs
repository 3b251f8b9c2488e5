//! `boathook`: the hook, and the commands for administrators.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// The memory allocator of the commands. It replaces the allocator of musl, which makes a system
/// call for nearly every allocation and deallocation.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::main()
}
