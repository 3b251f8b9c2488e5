//! Changes the ids of devices in an attachment record. This is needed if a device that was
//! requested by name has another id after it was plugged in again.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{DeviceId, DeviceRef};
use injection_plan::plan::StepOwner;

use super::{AttachmentRecord, AwaitedRequest};

impl AttachmentRecord {
    /// Changes the ids of devices in the whole record. The keys of `new_ids` are the devices with
    /// their previous ids. Returns the renamed devices: each key is the previous reference, and
    /// each value the new one.
    ///
    /// All devices are renamed at once, because two devices may have exchanged their ids. A device
    /// is not renamed if another device has or gets its new id.
    ///
    /// A request for a device by its name gets the new id only if `may_get_id` returns true for the
    /// request and this id. If it returns false, the name in the request now stands for another
    /// device.
    pub fn rename_devices(
        &mut self,
        new_ids: &BTreeMap<DeviceRef, DeviceId>,
        may_get_id: impl Fn(&AwaitedRequest, &DeviceId) -> bool,
    ) -> BTreeMap<DeviceRef, DeviceRef> {
        let mut renamed_refs = BTreeMap::new();
        let mut new_ids = new_ids.clone();
        let recorded_refs: Vec<DeviceRef> = self
            .devices
            .iter()
            .map(|device| device.device_ref())
            .collect();
        new_ids.retain(|device, _| recorded_refs.contains(device));
        // A device that is not renamed keeps its id, and another device may need exactly this id.
        // So the check is repeated until all devices that are left in `new_ids` can be renamed.
        loop {
            renamed_refs.clear();
            let unrenamed = recorded_refs
                .iter()
                .filter(|device| !new_ids.contains_key(device));
            let mut used_refs: BTreeSet<DeviceRef> = unrenamed.cloned().collect();
            let previous_count = new_ids.len();
            for device in &recorded_refs {
                let Some(id) = new_ids.get(device) else {
                    continue;
                };
                let new_ref = DeviceRef::new(&device.class, id);
                if used_refs.insert(new_ref.clone()) {
                    renamed_refs.insert(device.clone(), new_ref);
                } else {
                    new_ids.remove(device);
                }
            }
            if new_ids.len() == previous_count {
                break;
            }
        }
        for device in &mut self.devices {
            if let Some(new_ref) = renamed_refs.get(&device.device_ref()) {
                device.device_id.clone_from(&new_ref.id);
            }
        }
        for request in &mut self.awaited_requests {
            let id = request.device_id.as_ref();
            let previous_ref = id.map(|id| DeviceRef::new(&request.class, id));
            let new_ref = previous_ref.and_then(|previous_ref| renamed_refs.get(&previous_ref));
            if let Some(new_ref) = new_ref.filter(|it| may_get_id(request, &it.id)) {
                request.device_id = Some(new_ref.id.clone());
            }
        }
        let rules = self.rules.iter_mut().chain(&mut self.revoked_spec_rules);
        let owners = rules.map(|rule| &mut rule.owners);
        let owners = owners.chain(self.files.iter_mut().map(|file| &mut file.owners));
        for owner in owners.flatten() {
            if let Some(new_ref) = owner.device().and_then(|device| renamed_refs.get(device)) {
                *owner = StepOwner::Device(new_ref.clone());
            }
        }
        let announcements = std::mem::take(&mut self.announcements).into_iter();
        let announcements = announcements.map(|(device, announcements)| {
            let new_ref = renamed_refs.get(&device).cloned();
            (new_ref.unwrap_or(device), announcements)
        });
        self.announcements = announcements.collect();
        renamed_refs
    }
}
