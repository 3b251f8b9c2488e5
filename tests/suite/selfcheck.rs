//! Is the harness right? A suite that sees nothing would pass as well as one
//! that sees that all is well.

mod comparison;
mod containers;
mod device_rules;
mod leftovers;
mod loaders;
mod makefile;
mod syscalls;
