//! Reads class files ([`DeviceClass`]) and finds the devices and files that a class describes on a
//! host ([`discover::FoundClass`]). All programs of Boathook use this crate: the hook, the plugin,
//! the DRA driver, the installer, and the commands for administrators. Discovery reads the host
//! only through [`HostView`] and does not change it. The data flows in one direction:
//!
//! ```text
//! classes/*.toml ─load─▶ DeviceClass ─look_up_class(HostView)─▶ FoundClass: Inventory, FoundEdits
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
pub mod driver_properties;
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

/// Collects items into a set or map by inserting them one at a time. It is used instead of
/// `collect` to keep the hook small: `collect` sorts the items first, and needs 5 kB of machine
/// code for each item type. Inserting is fast enough for a few items and for sorted items.
pub fn collect_by_insertion<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut collection = C::default();
    collection.extend(items);
    collection
}
