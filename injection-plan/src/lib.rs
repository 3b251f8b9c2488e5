//! Plans how a container gets devices. A container requests devices of a device class
//! ([`request::Request`]). The plan lists everything that is then done to the container
//! ([`plan::InjectionPlan`]). A plan can also be written as a CDI specification ([`cdi`]).
//!
//! The hook, the wrapper runtime and `boathook explain` make the same plan with this crate. The
//! plugin and the DRA driver write CDI specifications with it.
//!
//! ```text
//! environment, annotations ─▶ Request ─plan_injection─▶ InjectionPlan ─▶ CDI
//! ```
//!
//! Planning does not change the host. Only [`facts`] runs programs of the host, and only
//! [`facts`], [`cdi::directory`] and [`follower`] write files.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod cdi;
pub mod claim_record;
pub mod facts;
pub mod follower;
pub mod kubelet_checkpoint;
pub mod kubelet_claims;
pub mod plan;
pub mod program_output;
pub mod request;
mod requirement;
