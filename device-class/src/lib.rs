//! Device classes: a vendor's TOML file ([`DeviceClass`]), what a
//! host has of it ([`discover::Inventory`]), what a container requests
//! ([`request::Request`]), and the plan to give it ([`plan::InjectionPlan`]).
//!
//! The data goes one way, and nothing on it changes the system; only
//! [`prepare`] runs programs of the host, and [`cdi::directory`] writes files:
//!
//! ```text
//! classes/*.toml ─load─▶ DeviceClass ─discover(HostView)─▶ Inventory ─plan(Request)─▶ InjectionPlan
//! ```
#![forbid(unsafe_code)]

pub mod cdi;
pub mod class;
pub mod config;
pub mod device;
pub mod discover;
mod formula;
pub mod host;
pub mod kernel_log;
pub mod ld_cache;
pub mod load;
pub mod name;
pub mod ownership;
pub mod pattern;
pub mod placement;
pub mod plan;
pub mod prepare;
pub mod program_output;
pub mod record;
pub mod request;
pub mod requirement;
pub mod similar;
pub mod starter;
pub mod strict_toml;
pub mod template;

pub use class::DeviceClass;
pub use host::HostView;
