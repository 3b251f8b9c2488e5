//! `boathook-hook`: the OCI hook, which container runtimes call at the start of each container.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// Replaces the allocator of musl, for the same reason as in `main.rs`: it makes a system call
/// for nearly every allocation.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::hook_main()
}
