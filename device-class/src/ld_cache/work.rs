//! Counts the bytes that are read and compared, in tests only: a bound on this number holds
//! on every machine, unlike one on time.

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many bytes more were read or compared.
#[cfg_attr(not(test), expect(unused_variables, reason = "counted in tests only"))]
pub(super) fn done(bytes: usize) {
    #[cfg(test)]
    DONE.with(|done| done.set(done.get() + bytes));
}

/// The bytes since the last call.
#[cfg(test)]
pub(super) fn take() -> usize {
    DONE.take()
}
