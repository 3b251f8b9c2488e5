//! The memory of a program of one thread.
//!
//! A lock costs two locked instructions for each allocation and each release, and the
//! hook makes thousands of them in a millisecond or two. It never has a second thread:
//! the kernel lets none into a mount namespace (setns(2)).

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::process::abort;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlmalloc::Dlmalloc;

thread_local! {
    /// Its address is another one in each thread.
    static HERE: u8 = const { 0 };
}

/// A global allocator without a lock. A second thread that uses it ends the process.
///
/// musl's own allocator has the kernel map and unmap memory for nearly each size
/// (`docs/performance.md`).
#[derive(Debug)]
pub struct SingleThreadMemory {
    blocks: UnsafeCell<Dlmalloc>,
    /// The thread that allocated first, by the address of its [`HERE`]; 0 before that.
    owner: AtomicUsize,
}

// SAFETY: `blocks` is reached through `Self::blocks` alone, which no thread but the owner
// returns from.
unsafe impl Sync for SingleThreadMemory {}

impl SingleThreadMemory {
    /// Memory of which nothing is allocated.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "only for a static")]
    pub const fn new() -> Self {
        Self {
            blocks: UnsafeCell::new(Dlmalloc::new()),
            owner: AtomicUsize::new(0),
        }
    }

    fn blocks(&self) -> *mut Dlmalloc {
        let this = HERE.with(ptr::from_ref).addr();
        if self.owner.load(Ordering::Relaxed) != this {
            self.claim(this);
        }
        self.blocks.get()
    }

    #[cold]
    fn claim(&self, this: usize) {
        let claimed = self
            .owner
            .compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            abort();
        }
    }
}

// SAFETY: the blocks are dlmalloc's, which aligns and sizes them as asked and gives null
// if there is no memory. One thread uses it, and no signal handler allocates, so that no
// two references to it exist at a time.
unsafe impl GlobalAlloc for SingleThreadMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let blocks = unsafe { &mut *self.blocks() };
        // SAFETY: the layout is valid.
        unsafe { blocks.malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let blocks = unsafe { &mut *self.blocks() };
        // SAFETY: the layout is valid.
        unsafe { blocks.calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        let blocks = unsafe { &mut *self.blocks() };
        // SAFETY: the caller got the block for this layout here.
        unsafe { blocks.free(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let blocks = unsafe { &mut *self.blocks() };
        // SAFETY: the caller got the block for this layout here.
        unsafe { blocks.realloc(block, layout.size(), layout.align(), size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thread_ends_the_process() {
        let memory = SingleThreadMemory::new();
        memory.blocks();
        // Only this thread goes on in the child process.
        // SAFETY: the child calls nothing that needs the other threads of the test.
        match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Child => {
                // The owner is another thread than this one.
                memory.owner.fetch_add(1, Ordering::Relaxed);
                memory.blocks();
                // SAFETY: it does not return, and runs nothing of this process.
                unsafe { libc::_exit(0) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                let ended = nix::sys::wait::waitpid(child, None).unwrap();
                let aborted = nix::sys::signal::Signal::SIGABRT;
                assert!(
                    matches!(ended, nix::sys::wait::WaitStatus::Signaled(_, signal, _) if signal == aborted),
                    "{ended:?}"
                );
            }
        }
    }
}
