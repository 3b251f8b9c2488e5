//! The webhook's own certificate authority. A CA signs one certificate and its key is
//! discarded, so that no other certificate can be signed; a renewal creates a new CA. The
//! replicas share certificate and key in a Secret, and each keeps the CAs in the webhook
//! configuration.

pub mod material;
pub mod pair;
pub mod shared;
