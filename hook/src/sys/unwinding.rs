//! Replaces the stack unwinder by stubs. A release build has neither the tables nor the symbols
//! that unwinding and backtraces need (`build.rs`). But the standard library still refers to the
//! unwinder. Without the stubs, the unwinder and the code that prints backtraces would add 240 kB
//! to each program.

/// Implements `_Unwind_Backtrace(callback, argument)` of the C++ ABI for a stack without frames, so
/// `callback` is never called. The result 5 is `_URC_END_OF_STACK`.
// SAFETY: no other definition of this symbol exists, because the unwinder is not linked.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
    5
}

macro_rules! never_called {
    ($($name:ident)*) => {$(
        // SAFETY: no other definition of these symbols exists, because the unwinder is not
        // linked.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> ! {
            std::process::abort()
        }
    )*};
}

never_called! {
    _Unwind_GetDataRelBase
    _Unwind_GetIPInfo
    _Unwind_GetLanguageSpecificData
    _Unwind_GetRegionStart
    _Unwind_GetTextRelBase
    _Unwind_Resume
    _Unwind_SetGR
    _Unwind_SetIP
}
