//! The Node Resource Interface of containerd and CRI-O (version v1alpha1): the
//! messages that are used here, and how they are sent.
//!
//! One stream socket carries two connections ([`Connection`]), in frames
//! (`pkg/net/multiplex` of containerd/nri); each connection carries messages of
//! ttrpc. [`encode`] and [`Decoder`] do both layers, without I/O: for the plugin,
//! and for the fake engine of the tests.
#![forbid(unsafe_code)]

mod decoder;
mod encoder;

pub use decoder::{Decoder, FrameError, MAX_FRAME, MAX_MESSAGE, Message};
pub use encoder::encode;

#[allow(unreachable_pub, unused_qualifications, clippy::all)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/nri.rs"));
}
pub use messages::*;

/// The service of the plugin, which the engine calls.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

/// The service of the engine, which the plugin calls.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// The bit of `ConfigureResponse.events` for CreateContainer.
pub const CREATE_CONTAINER: i32 = 1 << 3;

/// The bit for ValidateContainerAdjustment, which engines know since NRI 0.10.
pub const VALIDATE_CONTAINER_ADJUSTMENT: i32 = 1 << 13;

/// The two connections of a socket. No others are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// The engine calls the plugin.
    Plugin = 1,
    /// The plugin calls the engine.
    Runtime = 2,
}

/// The kinds of messages of ttrpc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A [`Call`].
    Request = 1,
    /// An [`Answer`].
    Response = 2,
}

/// The codes of [`Status`] that are used (google.rpc.Code).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// The message cannot be decoded.
    InvalidArgument = 3,
    /// The message is too large.
    ResourceExhausted = 8,
    /// The call cannot succeed here.
    FailedPrecondition = 9,
    /// There is no such method.
    Unimplemented = 12,
    /// The call can be tried again.
    Unavailable = 14,
}
