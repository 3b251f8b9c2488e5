//! Counts the bytes that are read and compared, in tests only: a bound on this number holds
//! on every machine, unlike one on time.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to the number of bytes that were read or compared.
#[cfg_attr(not(test), expect(unused_variables, reason = "counted in tests only"))]
pub(super) fn done(bytes: usize) {
    #[cfg(test)]
    DONE.with(|done| done.set(done.get() + bytes));
}

/// Returns the number of bytes since the last call, and resets it.
#[cfg(test)]
pub(super) fn take() -> usize {
    DONE.take()
}
