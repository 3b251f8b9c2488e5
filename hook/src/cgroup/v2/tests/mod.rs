//! Programs in virtual machines that are not ours, in a kernel that is made up,
//! and in the running one.

mod fake_kernel;
mod kernel;
mod levels;
mod programs;
mod properties;
mod rbpf_oracle;
mod runtime_programs;
