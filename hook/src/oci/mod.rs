//! What a runtime tells a hook: the State on stdin, and the bundle's
//! config.json. Both are other people's files: only what is needed is read,
//! and what is not needed may be anything.

mod bundle;
pub(crate) mod devices;
mod read;
mod state;

pub use bundle::{Bundle, BundleError};
pub(crate) use read::capped;
pub use state::{State, StateError};
