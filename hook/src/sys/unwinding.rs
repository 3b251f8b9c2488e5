//! No unwinding, and no backtrace at a panic: a release has neither the tables nor the symbols
//! for it (`build.rs`). With the C library's unwinder, which the standard library names
//! nevertheless, the code that gives frames their names is linked as well, 240 kB together.

/// The C++ ABI's `_Unwind_Backtrace(callback, argument)`, which may call the callback for no
/// frame. 5 is its `_URC_END_OF_STACK`.
// SAFETY: nothing else defines it: the unwinder is not linked.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
    5
}

macro_rules! never_called {
    ($($name:ident)*) => {$(
        // SAFETY: as above.
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
