//! What a container requests of device classes ([`request::Request`]), the plan to give it
//! ([`plan::InjectionPlan`]), and the same as specifications of the Container Device
//! Interface ([`cdi`]).
//!
//! ```text
//! environment, annotations ─▶ Request ─plan(Found, Authority)─▶ InjectionPlan ─▶ CDI
//! ```
//!
//! Planning changes nothing; only [`facts`] runs programs of the host, and it and
//! [`cdi::directory`] write files.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod cdi;
pub mod claim_record;
pub mod facts;
pub mod plan;
pub mod program_output;
pub mod record;
pub mod request;
mod requirement;
