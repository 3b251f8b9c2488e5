//! Changes the ids of devices in a record, when a device that was requested by name has another id
//! after it was plugged in again.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{DeviceId, DeviceRef};
use injection_plan::plan::StepUser;

use super::AttachmentRecord;

impl AttachmentRecord {
    /// Sets the new ids of devices. All devices are renamed at once, because two devices may have
    /// exchanged their ids. A device is not renamed if another one has or gets its new id. Returns
    /// the new references of the renamed devices, by their previous ones.
    pub(in crate::live) fn rename_devices(
        &mut self,
        ids: &BTreeMap<DeviceRef, DeviceId>,
    ) -> BTreeMap<DeviceRef, DeviceRef> {
        let mut renamed = BTreeMap::new();
        let mut ids = ids.clone();
        let recorded: Vec<DeviceRef> = self.devices.iter().map(|it| it.device_ref()).collect();
        ids.retain(|device, _| recorded.contains(device));
        // A device that is not renamed keeps an id that another one may have been given in this round.
        // So the rounds are repeated until no device is left out.
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
