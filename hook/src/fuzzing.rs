//! Fuzz targets of private modules (`tests/fuzz` calls them).

pub use crate::cgroup::device_program;
pub use crate::mountinfo::fuzzing::mountinfo;
pub use crate::trust::checkpoint;
