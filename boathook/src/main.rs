//! `boathook`: the commands for administrators. Installations of old releases also call it as the
//! hook.

use std::process::ExitCode;

use dlmalloc::GlobalDlmalloc;

/// The memory allocator of `boathook`. It replaces musl's allocator, which makes a system call for
/// nearly every allocation and deallocation.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    boathook::main()
}
