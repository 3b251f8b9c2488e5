//! `boathook-runtime`: an OCI runtime that adds the hook to a container that
//! requests devices, and then becomes the real one.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// As in `boathook`.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    hook::runtime_main()
}
