//! `boathook`: the hook, and the commands that explain it.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// musl's own allocator has the kernel map and unmap memory for nearly each size.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::main()
}
