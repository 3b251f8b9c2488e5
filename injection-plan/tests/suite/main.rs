//! Tests of requests, plans and specifications through the public interface of the library.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod absent_hardware;
mod all_devices;
mod capabilities;
mod cdi_common;
mod cdi_format;
mod device_files;
mod forbidden;
mod golden;
mod listed_files;
mod masks;
mod missing_nodes;
mod names;
mod needs;
mod node_paths;
mod other_forms;
mod planning;
mod same_names;
mod shared_names;
mod udev_links;
mod udev_names;
mod vendors_behaviour;
mod vendors_cases;
mod video_nodes;
mod waiting;
