//! Finds the cgroup of a container that has an attachment record. Determines from the cgroup and
//! the first process whether the container still runs.

use crate::attachment::record::AttachmentRecord;
use crate::cgroup::{CgroupError, DeviceCgroup};
use crate::container::{self, ProcessState};

impl AttachmentRecord {
    /// Records the path and the inode number of the container's cgroup. `cgroup` is the cgroup of
    /// the container's first process. It may be below the container's own cgroup, because the
    /// process may have moved there.
    pub fn set_cgroup(&mut self, cgroup: Option<&DeviceCgroup>) {
        let Some(cgroup) = cgroup.cloned().map(DeviceCgroup::into_runtime_cgroup) else {
            return;
        };
        self.cgroup_path = cgroup.path().to_owned();
        // The root cgroup is not recorded, because it does not belong to this container alone.
        if !cgroup.is_root() {
            self.cgroup_inode = cgroup.inode().unwrap_or_default();
        }
    }

    /// Reports whether all processes of the container have ended. Returns false if this is
    /// uncertain.
    ///
    /// It is not enough that the first process has ended. Without a PID namespace of its own, the
    /// container's other processes continue to run.
    pub fn has_ended(&self) -> bool {
        match container::read_process_state(self.pid, self.start_time) {
            ProcessState::Running | ProcessState::Unknown => false,
            ProcessState::Ended if self.is_init || !self.has_own_cgroup() => true,
            ProcessState::Ended => match self.find_recorded_cgroup() {
                Ok(Some(cgroup)) => cgroup
                    .is_populated()
                    .is_ok_and(|is_populated| !is_populated),
                Ok(None) => true,
                Err(_) => false,
            },
        }
    }

    /// Reports whether the record of a new start of the container may replace this record.
    ///
    /// If an older version of Boathook wrote this record, it is enough that the first process has
    /// ended. Such a record has no inode number, so the cgroup at its path may already be that of
    /// the new start.
    pub fn is_replaceable(&self) -> bool {
        let has_first_process_ended =
            || container::read_process_state(self.pid, self.start_time) == ProcessState::Ended;
        self.has_ended() || self.has_cgroup_path_only() && has_first_process_ended()
    }

    /// Reports whether the container's first process is running. Devices can be attached only while
    /// it is running, because its `/proc` directory leads to the container's namespaces.
    pub fn is_first_process_running(&self) -> bool {
        container::read_process_state(self.pid, self.start_time) == ProcessState::Running
    }

    /// Reports whether the record contains a cgroup that belongs to this container alone.
    fn has_own_cgroup(&self) -> bool {
        self.cgroup_inode != 0 || self.has_cgroup_path_only()
    }

    /// Reports whether the record has the path of the container's cgroup, but not its inode number,
    /// because an older version of Boathook wrote the record.
    fn has_cgroup_path_only(&self) -> bool {
        self.spec_rules.is_none() && self.cgroup_inode == 0 && self.cgroup_path.parent().is_some()
    }

    /// Finds the container's cgroup by the recorded path and inode number. Uses the path alone if
    /// an older version of Boathook wrote the record. Returns `None` if the cgroup was removed or
    /// is not recorded.
    fn find_recorded_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
        if !self.has_own_cgroup() {
            return Ok(None);
        }
        let cgroup = DeviceCgroup::from_path(&self.cgroup_path)?;
        let is_recorded_cgroup = |cgroup: &DeviceCgroup| {
            let inode = cgroup.inode();
            inode.is_ok_and(|inode| inode == self.cgroup_inode || self.has_cgroup_path_only())
        };
        Ok(cgroup.filter(is_recorded_cgroup))
    }

    /// Returns the recorded cgroup of the container. If no cgroup is recorded, returns the cgroup
    /// of the first process. Returns `None` if the cgroup was removed with the container, or if
    /// this host has no device controller.
    ///
    /// # Errors
    ///
    /// Fails if the cgroup is not visible to this process, such as when the process is in another
    /// cgroup namespace.
    pub fn find_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
        let recorded_cgroup = self.find_recorded_cgroup()?;
        if recorded_cgroup.is_some() {
            return Ok(recorded_cgroup);
        }
        let process_cgroup = DeviceCgroup::from_pid(self.pid);
        // This check comes after the read of the cgroup. If the first process has ended, another
        // process may have its id, and `process_cgroup` may be the cgroup of that other process.
        if !self.is_first_process_running() {
            return Ok(None);
        }
        if self.cgroup_inode != 0 {
            return Err(CgroupError::NotVisible {
                cgroup: self.cgroup_path.clone(),
            });
        }
        Ok(process_cgroup?.map(|cgroup| cgroup.with_container_cgroup(&self.cgroup_path)))
    }
}
