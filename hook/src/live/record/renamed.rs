//! Devices of a record that have other ids now.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{DeviceId, DeviceRef};
use injection_plan::plan::StepUser;

use super::AttachmentRecord;

impl AttachmentRecord {
    /// Gives devices the ids that they have now. All are renamed at once, because two devices may
    /// have exchanged their ids. A device that would have the id of another one is not renamed.
    /// Returns the renamed devices, by what they were before.
    pub(in crate::live) fn rename_devices(
        &mut self,
        ids: &BTreeMap<DeviceRef, DeviceId>,
    ) -> BTreeMap<DeviceRef, DeviceRef> {
        let mut renamed = BTreeMap::new();
        let mut ids = ids.clone();
        let recorded: Vec<DeviceRef> = self.devices.iter().map(|it| it.device_ref()).collect();
        ids.retain(|device, _| recorded.contains(device));
        // To leave one device as it is can take the id that another one would get.
        loop {
            renamed.clear();
            let kept = recorded.iter().filter(|device| !ids.contains_key(device));
            let mut used: BTreeSet<DeviceRef> = kept.cloned().collect();
            let count = ids.len();
            for device in &recorded {
                let Some(id) = ids.get(device) else { continue };
                let new = DeviceRef::new(&device.class, id);
                if used.insert(new.clone()) {
                    renamed.insert(device.clone(), new);
                } else {
                    ids.remove(device);
                }
            }
            if ids.len() == count {
                break;
            }
        }
        for device in &mut self.devices {
            if let Some(new) = renamed.get(&device.device_ref()) {
                device.device.clone_from(&new.id);
            }
        }
        let rules = self.rules.iter_mut().chain(&mut self.revoked_spec_rules);
        let users = rules.map(|rule| &mut rule.users);
        let users = users.chain(self.files.iter_mut().map(|file| &mut file.users));
        for user in users.flatten() {
            if let Some(new) = user.device().and_then(|device| renamed.get(device)) {
                *user = StepUser::Device(new.clone());
            }
        }
        let announced = std::mem::take(&mut self.announced).into_iter();
        let announced = announced.map(|(old, it)| (renamed.get(&old).cloned().unwrap_or(old), it));
        self.announced = announced.collect();
        renamed
    }
}
