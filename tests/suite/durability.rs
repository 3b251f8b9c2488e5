//! Devices that stay: the events that affect a container's device rules while it runs,
//! on hosts where systemd is process 1.

mod cdi_unit;
mod cost;
mod device_source;
mod event;
mod live;
mod package;
mod plugin_service;
mod running_container;
mod services;
mod survival;
mod table;
mod unit_rights;
