//! Conversations with a systemd that answers by a script.

mod conversation;
mod fake_systemd;
