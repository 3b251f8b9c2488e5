//! The memory allocator of the programs of this crate.
//!
//! A hook lives for milliseconds, has one thread, and allocates and frees some ten thousand small
//! blocks. A general allocator spends a quarter of the hook's instructions on its lock, and on
//! joining and splitting neighbouring blocks. This one has neither:
//!
//! - Each thread has its own lists of free blocks, so that no lock is needed. A block that is
//!   freed by another thread than the one that allocated it joins the lists of that thread.
//! - The sizes of small blocks are rounded up to one of [`SIZES`]. A freed block is used again for
//!   blocks of its size, and never joined with others.
//! - A large block is a mapping of its own, which is given back to the kernel when it is freed.
//!
//! The memory of small blocks is bounded by the sum, over all sizes, of the most blocks of that
//! size that existed at one time, because a new block is cut only while no freed one of its size
//! exists. It is never given back to the kernel before the process ends.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

/// The allocator. The programs name it as their `#[global_allocator]`.
#[derive(Debug)]
pub struct ThreadAllocator;

/// The alignment of small blocks. Allocations with a larger one are treated as large.
const ALIGNMENT: usize = 16;

/// Up to this size, block sizes are multiples of [`ALIGNMENT`]. Above, there are four sizes
/// between a power of two and the next one, so that a fifth of a block is unused at most.
const EXACT: usize = 512;
const EXACT_SIZES: usize = EXACT / ALIGNMENT;

/// The largest small block. A class file and a recorded list of mounts fit into it.
const LARGEST: usize = 128 << 10;

/// The number of sizes of small blocks.
const SIZES: usize = EXACT_SIZES + 4 * (LARGEST.ilog2() - EXACT.ilog2()) as usize;

/// The memory that is requested from the kernel at once. It gets pages only where it is used.
const REGION: usize = 1 << 20;

/// A mapping has whole pages, and so is aligned like a page.
const PAGE: usize = 4096;

/// Returns the number of the block size for `size` bytes, which must be from 1 to [`LARGEST`].
fn size_number(size: usize) -> usize {
    let last = size - 1;
    if size <= EXACT {
        return last / ALIGNMENT;
    }
    let log = last.ilog2();
    let quarter = (last >> (log - 2)) & 3;
    EXACT_SIZES + 4 * (log - EXACT.ilog2()) as usize + quarter
}

/// Returns the block size with this number, in bytes.
fn block_size(number: usize) -> usize {
    match number.checked_sub(EXACT_SIZES) {
        None => (number + 1) * ALIGNMENT,
        Some(above) => (5 + above % 4) << (EXACT.ilog2() as usize - 2 + above / 4),
    }
}

fn is_small(layout: Layout) -> bool {
    layout.size() <= LARGEST && layout.align() <= ALIGNMENT
}

/// A free block. Its first bytes have the address of the next free block of the same size.
struct FreeBlock {
    next: *mut FreeBlock,
}

/// The memory of one thread.
struct Blocks {
    /// The last freed block of each size, or null.
    free: [Cell<*mut FreeBlock>; SIZES],
    /// The rest of the region from which new blocks are cut.
    rest: Cell<*mut u8>,
    rest_size: Cell<usize>,
}

impl Blocks {
    const EMPTY: Self = Self {
        free: [const { Cell::new(ptr::null_mut()) }; SIZES],
        rest: Cell::new(ptr::null_mut()),
        rest_size: Cell::new(0),
    };

    /// Returns a block of the size with this number, or null if the kernel has no memory.
    fn take(&self, number: usize) -> *mut u8 {
        let list = &self.free[number];
        let Some(block) = NonNull::new(list.get()) else {
            return self.cut(block_size(number));
        };
        // SAFETY: a block in a list is free, and `give` has written its first bytes.
        list.set(unsafe { block.as_ref() }.next);
        block.as_ptr().cast()
    }

    /// Adds a free block of the size with this number.
    ///
    /// # Safety
    /// The block was returned by `take` for this number, and nothing uses it.
    unsafe fn give(&self, block: *mut u8, number: usize) {
        let list = &self.free[number];
        let block = block.cast::<FreeBlock>();
        // SAFETY: the caller says that nothing else uses the block. Each block is large enough,
        // and aligned for a pointer.
        unsafe { block.write(FreeBlock { next: list.get() }) };
        list.set(block);
    }

    fn cut(&self, size: usize) -> *mut u8 {
        if self.rest_size.get() < size {
            let Some(region) = map(REGION) else {
                return ptr::null_mut();
            };
            self.rest.set(region.as_ptr());
            self.rest_size.set(REGION);
        }
        let block = self.rest.get();
        self.rest.set(block.wrapping_add(size));
        self.rest_size.set(self.rest_size.get() - size);
        block
    }
}

/// The blocks of the first thread that allocates. Threads that start later get a mapping.
struct FirstBlocks(Blocks);

// SAFETY: `own_blocks` gives it to one thread only.
unsafe impl Sync for FirstBlocks {}

static FIRST: FirstBlocks = FirstBlocks(Blocks::EMPTY);
static FIRST_IS_TAKEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The blocks of this thread, or null before its first allocation. The value has no
    /// destructor, so that an allocation may use it at any time.
    static OWN: Cell<*const Blocks> = const { Cell::new(ptr::null()) };
}

/// Returns the blocks of this thread, or `None` if the kernel has no memory for them.
fn own_blocks() -> Option<&'static Blocks> {
    let own = OWN.get();
    // SAFETY: the pointer is null, or points to blocks that stay until the process ends.
    unsafe { own.as_ref() }.or_else(first_blocks)
}

#[cold]
fn first_blocks() -> Option<&'static Blocks> {
    let blocks: &Blocks = if FIRST_IS_TAKEN.swap(true, Ordering::Relaxed) {
        let place = map(size_of::<Blocks>())?.cast::<Blocks>();
        // SAFETY: the mapping is new, is large enough and is aligned like a page.
        unsafe { place.write(Blocks::EMPTY) };
        // SAFETY: the value was just written, and the mapping is never removed.
        unsafe { place.as_ref() }
    } else {
        &FIRST.0
    };
    OWN.set(blocks);
    Some(blocks)
}

/// Returns a new mapping of at least `size` bytes, which are zero.
fn map(size: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an address at which nothing is mapped.
    let address = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
    (address != libc::MAP_FAILED)
        .then(|| NonNull::new(address.cast()))
        .flatten()
}

// SAFETY: a block of `take` is in no list and in no other block until `give` gets it, and is at
// least as large as the layout, whose alignment is no larger than that of every block size. A
// large block is a mapping of its own. Nothing here panics or allocates.
unsafe impl GlobalAlloc for ThreadAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_small(layout) {
            return match own_blocks() {
                Some(blocks) => blocks.take(size_number(layout.size())),
                None => ptr::null_mut(),
            };
        }
        let mapping = if layout.align() <= PAGE {
            map(layout.size())
        } else {
            None
        };
        mapping.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_small(layout) {
            // SAFETY: the block is a mapping, because `alloc` made one for this layout.
            unsafe { libc::munmap(block.cast(), layout.size()) };
        } else if let Some(blocks) = own_blocks() {
            // SAFETY: `alloc` took the block for this size, and the caller gives it up.
            unsafe { blocks.give(block, size_number(layout.size())) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller says that the new size is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_small(layout), is_small(new_layout)) {
            (true, true) if size_number(layout.size()) == size_number(new_size) => return block,
            (false, false) if layout.align() <= PAGE => {
                let flags = libc::MREMAP_MAYMOVE;
                // SAFETY: the block is a mapping of this size, and the caller gives it up.
                let moved = unsafe { libc::mremap(block.cast(), layout.size(), new_size, flags) };
                return if moved == libc::MAP_FAILED {
                    ptr::null_mut()
                } else {
                    moved.cast()
                };
            }
            _ => {}
        }
        // SAFETY: the caller says that the new size is not zero.
        let copy = unsafe { self.alloc(new_layout) };
        if !copy.is_null() {
            let length = layout.size().min(new_size);
            // SAFETY: both blocks have at least this length, and are different blocks.
            unsafe { ptr::copy_nonoverlapping(block, copy, length) };
            // SAFETY: the block has this layout, and the caller gives it up.
            unsafe { self.dealloc(block, layout) };
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn a_block_is_as_large_as_the_request_and_not_much_larger() {
        for size in 1..=LARGEST {
            let number = size_number(size);
            let block = block_size(number);
            assert!(number < SIZES && block >= size, "{size}: {block}");
            assert_eq!(block % ALIGNMENT, 0, "{size}");
            assert!(
                block <= (size + ALIGNMENT).max(size + size / 4),
                "{size}: {block}"
            );
            assert!(number == 0 || block_size(number - 1) < size, "{size}");
        }
        assert_eq!(block_size(SIZES - 1), LARGEST);
    }

    /// A block, and the byte that fills it.
    struct Filled {
        block: *mut u8,
        layout: Layout,
        byte: u8,
    }

    // SAFETY: the allocator allows that another thread frees a block.
    unsafe impl Send for Filled {}

    impl Filled {
        fn new(layout: Layout, byte: u8) -> Self {
            // SAFETY: the size is not zero.
            let block = unsafe { ThreadAllocator.alloc(layout) };
            assert!(
                !block.is_null() && block.addr() % layout.align() == 0,
                "{layout:?}"
            );
            // SAFETY: the block has this size.
            unsafe { block.write_bytes(byte, layout.size()) };
            Self {
                block,
                layout,
                byte,
            }
        }

        fn resize(&mut self, size: usize) {
            self.check();
            // SAFETY: the block has this layout, and the size is not zero.
            self.block = unsafe { ThreadAllocator.realloc(self.block, self.layout, size) };
            let kept = self.layout.size().min(size);
            self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
            self.check_bytes(kept);
            // SAFETY: the block has this size.
            unsafe { self.block.write_bytes(self.byte, size) };
        }

        fn check(&self) {
            self.check_bytes(self.layout.size());
        }

        fn check_bytes(&self, length: usize) {
            // SAFETY: the block has at least this length.
            let bytes = unsafe { std::slice::from_raw_parts(self.block, length) };
            assert!(
                bytes.iter().all(|byte| *byte == self.byte),
                "{:?}",
                self.layout
            );
        }

        fn free(self) {
            self.check();
            // SAFETY: the block has this layout, and is not used again.
            unsafe { ThreadAllocator.dealloc(self.block, self.layout) };
        }
    }

    /// Blocks of all sizes exist at the same time, grow and shrink, and keep their contents.
    #[test]
    fn blocks_do_not_overlap() {
        let sizes = [
            1,
            15,
            16,
            17,
            100,
            512,
            513,
            5000,
            LARGEST,
            LARGEST + 1,
            3 << 20,
        ];
        let mut all = Vec::new();
        for round in 0..6_u8 {
            for (number, size) in sizes.iter().enumerate() {
                for align in [1, 16, 64, PAGE] {
                    let layout = Layout::from_size_align(*size, align).unwrap();
                    all.push(Filled::new(layout, round.wrapping_mul(31) ^ number as u8));
                }
            }
            for (number, block) in all.iter_mut().enumerate() {
                block.resize(sizes[(number + usize::from(round)) % sizes.len()]);
            }
            let kept = all.split_off(all.len() / 2);
            all.into_iter().for_each(Filled::free);
            all = kept;
        }
        all.into_iter().for_each(Filled::free);
    }

    #[test]
    fn a_freed_block_is_used_again() {
        for size in [1, 40, 600, 9000, LARGEST] {
            let first = Filled::new(layout(size), 1);
            let address = first.block;
            first.free();
            let second = Filled::new(layout(size), 2);
            assert_eq!(second.block, address, "{size}");
            second.free();
        }
    }

    #[test]
    fn an_impossible_size_or_alignment_is_refused() {
        for (size, align) in [(isize::MAX as usize & !0xfff, 8), (100, 2 * PAGE)] {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not zero.
            assert!(
                unsafe { ThreadAllocator.alloc(layout) }.is_null(),
                "{layout:?}"
            );
        }
    }

    #[test]
    fn another_thread_may_free_a_block() {
        std::thread::scope(|scope| {
            for byte in 0..4 {
                let blocks: Vec<Filled> = (1..2000)
                    .map(|size| Filled::new(layout(size), byte))
                    .collect();
                scope.spawn(move || {
                    let more: Vec<Filled> =
                        (1..2000).map(|size| Filled::new(layout(size), 9)).collect();
                    blocks.into_iter().chain(more).for_each(Filled::free);
                });
            }
        });
    }
}
