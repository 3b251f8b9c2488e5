//! Device classes: a vendor's TOML file ([`DeviceClass`]), and what a host has of it
//! ([`discover::FoundClass`]). The data goes one way, and nothing on it changes the system:
//!
//! ```text
//! classes/*.toml ─load─▶ DeviceClass ─look_up(HostView)─▶ FoundClass: Inventory, FoundEdits
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod class;
pub mod config;
pub mod device;
pub mod discover;
pub mod facts;
mod formula;
pub mod host;
pub mod ld_cache;
pub mod load;
pub mod name;
pub mod ownership;
pub mod pattern;
pub mod similar;
pub mod strict_toml;
pub mod template;

pub use class::DeviceClass;
pub use host::HostView;

/// Collects into a set or map of few items, or of many that are sorted already. `collect` sorts
/// the items first, with 5 kB of code for each type of items.
pub fn inserted<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut all = C::default();
    all.extend(items);
    all
}
