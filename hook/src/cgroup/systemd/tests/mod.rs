//! Tests of conversations with a scripted systemd.

mod conversation;
mod fake_systemd;
