//! Counts the bytes that are read and compared, only in tests. The tests limit this number, because
//! it is the same on every machine, while a limit on the time is not.

#[cfg(test)]
thread_local! {
    static COUNTED_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to the number of bytes that were read or compared.
#[cfg_attr(not(test), expect(unused_variables, reason = "counted in tests only"))]
pub(super) fn add_bytes(bytes: usize) {
    #[cfg(test)]
    COUNTED_BYTES.with(|count| count.set(count.get() + bytes));
}

/// Returns the number of bytes that were counted since the last call, and resets it.
#[cfg(test)]
pub(super) fn take_count() -> usize {
    COUNTED_BYTES.take()
}
