//! Kernels that fail: every system call of a program fails once, or the program
//! is killed at it (strace(1), "Tampering").
//!
//! The result is the whole plan, or an error with a line that names
//! why, and nothing is left behind. Calls that older kernels lack are in
//! `runc::hidden_calls`.
//!
//! The short run tries a few of each program's calls; with
//! `BOATHOOK_FAILURES=long` (`make failures`) every call fails in every way.

mod attach;
mod hook;
mod installer;
mod trace;
mod wrapper;
