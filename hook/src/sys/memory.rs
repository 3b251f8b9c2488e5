//! The memory of programs that have one thread, which start with every container.
//!
//! The allocator is dlmalloc without a lock: taking and releasing one for each of some ten thousand
//! allocations would be a tenth of the work of a container's start. Memory comes from the kernel
//! in pieces whose pages are made at once, because a page fault for each of them takes several
//! times as long.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};

use dlmalloc::{Allocator, Dlmalloc};

/// An allocator for a program with one thread. A second thread that allocates or frees memory ends
/// the process. So does a signal handler that allocates during an allocation.
pub struct SingleThreadMemory {
    heap: UnsafeCell<Dlmalloc<KernelMemory>>,
    /// The thread that uses the memory, by the address of its [`THREAD`].
    thread: AtomicPtr<u8>,
    is_in_use: AtomicBool,
}

thread_local! {
    /// A variable whose address differs between threads. It is initialised when the program is
    /// compiled, so that access to it allocates nothing.
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

// SAFETY: `with_heap` ends the process if another thread than the first one calls it.
unsafe impl Sync for SingleThreadMemory {}

impl Default for SingleThreadMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl SingleThreadMemory {
    pub const fn new() -> Self {
        SingleThreadMemory {
            heap: UnsafeCell::new(Dlmalloc::new_with_allocator(KernelMemory)),
            thread: AtomicPtr::new(ptr::null_mut()),
            is_in_use: AtomicBool::new(false),
        }
    }

    #[inline]
    fn with_heap<T>(&self, work: impl FnOnce(&mut Dlmalloc<KernelMemory>) -> T) -> T {
        let this = THREAD.with(Cell::as_ptr);
        let owner = self.thread.load(Ordering::Relaxed);
        let is_owner = owner == this || owner.is_null() && self.take_over(this);
        if !is_owner || self.is_in_use.load(Ordering::Relaxed) {
            process::abort();
        }
        self.is_in_use.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this is the only thread that gets here, and no other call is in progress on it.
        // `work` is one call of dlmalloc, which does not call back.
        let result = work(unsafe { &mut *self.heap.get() });
        compiler_fence(Ordering::SeqCst);
        self.is_in_use.store(false, Ordering::Relaxed);
        result
    }

    /// Makes this thread the one that uses the memory, unless another one did so before.
    #[cold]
    fn take_over(&self, this: *mut u8) -> bool {
        let none = ptr::null_mut();
        let taken = self
            .thread
            .compare_exchange(none, this, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }
}

// SAFETY: dlmalloc keeps the contract, and is called with what this trait's callers pass.
unsafe impl GlobalAlloc for SingleThreadMemory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, as below.
        self.with_heap(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see `alloc`.
        self.with_heap(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: see `alloc`.
        self.with_heap(|heap| unsafe { heap.free(pointer, layout.size(), layout.align()) });
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: see `alloc`.
        self.with_heap(|heap| unsafe { heap.realloc(pointer, layout.size(), layout.align(), size) })
    }
}

/// The largest piece whose pages are made at once, in bytes. A larger one is for one value, such
/// as the buffer for a file that may be much shorter.
const MAX_POPULATED: usize = 256 << 10;

/// The heap's source of memory, mmap(2). Nothing is given back before the end of the process.
struct KernelMemory;

// SAFETY: each call of `alloc` maps new memory, which stays mapped.
unsafe impl Allocator for KernelMemory {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        if size <= MAX_POPULATED {
            flags |= libc::MAP_POPULATE;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses an address that is not in use.
        let piece = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, -1, 0) };
        if piece == libc::MAP_FAILED {
            (ptr::null_mut(), 0, 0)
        } else {
            (piece.cast(), size, 0)
        }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn bytes<'m>(pointer: *mut u8, length: usize) -> &'m mut [u8] {
        // SAFETY: the tests pass memory that is allocated with this length, and use it in one place.
        unsafe { std::slice::from_raw_parts_mut(pointer, length) }
    }

    #[test]
    fn memory_is_reused_and_grows() {
        let memory = SingleThreadMemory::new();
        // SAFETY: the layouts have a size, and each pointer is used with its own layout, as below.
        let first = unsafe { memory.alloc(layout(100, 8)) };
        bytes(first, 100).fill(7);
        // SAFETY: see above.
        let grown = unsafe { memory.realloc(first, layout(100, 8), 1 << 20) };
        assert_eq!(bytes(grown, 100), [7; 100]);
        // SAFETY: see above.
        unsafe { memory.dealloc(grown, layout(1 << 20, 8)) };
        // SAFETY: see above.
        let cleared = unsafe { memory.alloc_zeroed(layout(1000, 8)) };
        assert_eq!(bytes(cleared, 1000), [0; 1000]);
        // SAFETY: see above.
        let aligned = unsafe { memory.alloc(layout(64, 4096)) };
        assert!(aligned.addr().is_multiple_of(4096));
    }

    #[test]
    fn only_the_first_thread_takes_the_memory() {
        let memory = SingleThreadMemory::new();
        let (mut first, mut second) = (0, 0);
        assert!(memory.take_over(&raw mut first));
        assert!(!memory.take_over(&raw mut second));
    }
}
