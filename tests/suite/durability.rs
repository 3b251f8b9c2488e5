//! Devices that stay: what happens to a container's device rules while it runs,
//! on hosts where systemd is process 1.

mod cost;
mod event;
mod given_by;
mod subject;
mod survival;
mod table;
