//! Tests of programs in an independent virtual machine, in a fake kernel, and in the running
//! one.

mod fake_kernel;
mod kernel;
mod levels;
mod programs;
mod properties;
mod rbpf_oracle;
mod runtime_programs;
