//! A memory allocator for the programs that run at every start of a container. These programs have
//! one thread.
//!
//! The allocator is dlmalloc without a lock. The start of a container needs about ten thousand
//! allocations, and locks would be a tenth of the program's work. The kernel provides all pages of
//! new memory at once (MAP_POPULATE), because a page fault for each page would take several times
//! as long.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};

use dlmalloc::{Allocator, Dlmalloc};

/// An allocator for a program with one thread. It aborts the process if a second thread allocates
/// or frees memory, or if a signal handler allocates memory during another allocation.
pub struct SingleThreadMemory {
    heap: UnsafeCell<Dlmalloc<KernelMemory>>,
    /// The thread that uses the allocator, as the address of its [`THREAD_MARKER`]. It is null
    /// before the first allocation.
    owner_thread: AtomicPtr<u8>,
    is_heap_busy: AtomicBool,
}

thread_local! {
    /// A variable with a different address in each thread, which identifies the thread. Its value
    /// is known at compile time, so that an access to it allocates nothing.
    static THREAD_MARKER: Cell<u8> = const { Cell::new(0) };
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
            owner_thread: AtomicPtr::new(ptr::null_mut()),
            is_heap_busy: AtomicBool::new(false),
        }
    }

    /// Calls `work` with the heap. Aborts the process if another thread owns the allocator, or if
    /// another call of this function is in progress.
    #[inline]
    fn with_heap<T>(&self, work: impl FnOnce(&mut Dlmalloc<KernelMemory>) -> T) -> T {
        let this_thread = THREAD_MARKER.with(Cell::as_ptr);
        let owner = self.owner_thread.load(Ordering::Relaxed);
        let is_owner =
            owner == this_thread || owner.is_null() && self.try_become_owner(this_thread);
        if !is_owner || self.is_heap_busy.load(Ordering::Relaxed) {
            process::abort();
        }
        self.is_heap_busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: this is the only thread that gets here, and no other call is in progress on it.
        // `work` is one call of dlmalloc, which does not call back.
        let result = work(unsafe { &mut *self.heap.get() });
        compiler_fence(Ordering::SeqCst);
        self.is_heap_busy.store(false, Ordering::Relaxed);
        result
    }

    /// Makes this thread the owner of the allocator if no thread owns it yet. Returns whether this
    /// thread is the owner now.
    #[cold]
    fn try_become_owner(&self, this_thread: *mut u8) -> bool {
        let no_thread = ptr::null_mut();
        let result = self.owner_thread.compare_exchange(
            no_thread,
            this_thread,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        result.is_ok()
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

/// The maximum size in bytes of a mapping whose pages are provided at once (MAP_POPULATE). A larger
/// mapping usually contains a single large buffer that may be used only in part.
const MAX_PREFAULTED_BYTES: usize = 256 << 10;

/// The source from which the heap gets its memory. It calls mmap(2). Memory is not returned to the
/// kernel before the process ends.
struct KernelMemory;

// SAFETY: each call of `alloc` maps new memory, which stays mapped.
unsafe impl Allocator for KernelMemory {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut flags = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE;
        if size <= MAX_PREFAULTED_BYTES {
            flags |= libc::MAP_POPULATE;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel chooses an address that is not in use.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            (ptr::null_mut(), 0, 0)
        } else {
            (mapping.cast(), size, 0)
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
        // SAFETY: the tests pass memory that is allocated with this length, and use it in one
        // place.
        unsafe { std::slice::from_raw_parts_mut(pointer, length) }
    }

    #[test]
    fn memory_is_reused_and_grows() {
        let memory = SingleThreadMemory::new();
        // SAFETY: the layouts have a size, and each pointer is used with its own layout, as below.
        let pointer = unsafe { memory.alloc(layout(100, 8)) };
        bytes(pointer, 100).fill(7);
        // SAFETY: see above.
        let larger_pointer = unsafe { memory.realloc(pointer, layout(100, 8), 1 << 20) };
        assert_eq!(bytes(larger_pointer, 100), [7; 100]);
        // SAFETY: see above.
        unsafe { memory.dealloc(larger_pointer, layout(1 << 20, 8)) };
        // SAFETY: see above.
        let zeroed_pointer = unsafe { memory.alloc_zeroed(layout(1000, 8)) };
        assert_eq!(bytes(zeroed_pointer, 1000), [0; 1000]);
        // SAFETY: see above.
        let aligned_pointer = unsafe { memory.alloc(layout(64, 4096)) };
        assert!(aligned_pointer.addr().is_multiple_of(4096));
    }

    #[test]
    fn only_the_first_thread_takes_the_memory() {
        let memory = SingleThreadMemory::new();
        let (mut first, mut second) = (0, 0);
        assert!(memory.try_become_owner(&raw mut first));
        assert!(!memory.try_become_owner(&raw mut second));
    }
}
