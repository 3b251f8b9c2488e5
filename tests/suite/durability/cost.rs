//! What it costs to tell systemd.
