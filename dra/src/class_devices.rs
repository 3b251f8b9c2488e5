//! Collects the devices of a class and their possible parts, with the names that they have in
//! ResourceSlices.

use std::io;
use std::path::Path;

use device_class::class::PartProfile;
use device_class::discover::{
    self, Device, DeviceDivision, FoundClass, Health, Inventory, PossiblePart,
};
use device_class::host::RealHost;
use device_class::name::DeviceId;
use device_class::{DeviceClass, ownership};

use crate::names;

/// A class with its devices and their possible parts on the host, and the names that they have in
/// ResourceSlices.
#[derive(Debug, Clone)]
pub struct ClassDevices {
    pub class: DeviceClass,
    /// The devices, and for each device the further device nodes that a container gets together
    /// with it.
    pub found_class: FoundClass,
    /// The names of the devices in ResourceSlices, in the order of `found_class.inventory.devices`.
    pub device_names: Vec<String>,
    /// The devices that can be divided into parts, or are divided already.
    pub divisible_devices: Vec<DivisibleDevice>,
    /// Whether the devices that the kubelet allocated through the device plugin are known. If not,
    /// each device may be in use, and no claim may get one.
    pub are_allocations_known: bool,
}

/// A device that can be divided into parts, with its name and the names of the parts.
#[derive(Debug, Clone)]
pub struct DivisibleDevice {
    /// The device's name in ResourceSlices.
    pub name: String,
    pub division: DeviceDivision,
    /// The names of the possible parts in ResourceSlices, in the order of `division.parts`.
    pub part_names: Vec<String>,
}

/// The device or part to which a name in ResourceSlices refers.
#[derive(Debug, Clone, Copy)]
pub enum NamedDevice<'a> {
    Device(&'a Device),
    /// A possible part, with the device that can be divided into it.
    Part(&'a DivisibleDevice, &'a PossiblePart),
}

/// One device in the list of a class, with all its parts if it can be divided. It becomes one or
/// more entries of a ResourceSlice.
#[derive(Debug, Clone, Copy)]
pub enum PoolEntry<'a> {
    Device(&'a str, &'a Device),
    /// A divisible device with all its possible parts.
    Divisible(&'a DivisibleDevice),
}

impl DivisibleDevice {
    /// Returns the possible parts of the device with their names in ResourceSlices.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &PossiblePart)> {
        let names = self.part_names.iter().map(String::as_str);
        names.zip(&self.division.parts)
    }

    /// Returns whether `device` is this divisible device or a part of it.
    fn contains_device(&self, device: &Device) -> bool {
        *device.part_of.as_ref().unwrap_or(&device.id) == self.division.whole_device.id
    }
}

impl ClassDevices {
    /// Chooses the names of a class's devices, and determines which devices can be divided.
    /// `host_root` is the path of the host's root directory. Also returns a message for each reason
    /// why devices cannot be divided.
    pub fn new(
        class: DeviceClass,
        found_class: FoundClass,
        host_root: &Path,
    ) -> (Self, Vec<String>) {
        let inventory = &found_class.inventory;
        let (divisible_parents, warnings) = find_divisible_devices(&class, inventory, host_root);
        // A device that is already divided into parts is not in the inventory. It gets a name as
        // well, so that the names of the other devices do not change when a device is divided.
        let mut ids: Vec<&DeviceId> = inventory.devices.iter().map(|device| &device.id).collect();
        let divided_ids: Vec<_> = divisible_parents
            .iter()
            .map(|device| &device.whole_device.id)
            .filter(|id| !ids.contains(id))
            .collect();
        ids.extend(divided_ids);
        let mut device_names = names::build_device_names(&ids);
        // An existing part gets its name from the list of possible parts, so that a part keeps its
        // name when it is created.
        let is_part = |device: &Device| {
            let mut parents = divisible_parents
                .iter()
                .map(|parent| &parent.whole_device.id);
            parents.any(|id| device.part_of.as_ref() == Some(id))
        };
        let undivided_names: Vec<String> = inventory
            .devices
            .iter()
            .zip(&device_names)
            .filter(|(device, _)| !is_part(device))
            .map(|(_, name)| name.clone())
            .collect();
        let mut divisible_devices = Vec::new();
        for divisible in &divisible_parents {
            let index = ids.iter().position(|id| **id == divisible.whole_device.id);
            let name = index
                .map(|index| device_names[index].clone())
                .unwrap_or_default();
            let mut part_names: Vec<String> = Vec::new();
            for part in &divisible.parts {
                part_names.push(names::build_part_name(
                    &name,
                    &part.profile,
                    part.placement(),
                    |name| {
                        let mut used_names = undivided_names.iter().chain(&part_names);
                        used_names.any(|used_name| used_name == name)
                    },
                ));
            }
            divisible_devices.push(DivisibleDevice {
                part_names,
                division: divisible.clone(),
                name,
            });
        }
        device_names.truncate(inventory.devices.len());
        let devices = ClassDevices {
            class,
            found_class,
            device_names,
            divisible_devices,
            are_allocations_known: true,
        };
        (devices, warnings)
    }

    /// Searches the host for the devices again, for example after a part was created. Fails if
    /// `host_root` cannot be opened.
    pub fn rediscover_devices(&self, host_root: &Path) -> io::Result<Self> {
        let host = RealHost::open(host_root)?;
        let found_class = FoundClass {
            inventory: discover::find_devices(&self.class, &host),
            edits: self.found_class.edits.clone(),
        };
        Ok(ClassDevices {
            are_allocations_known: self.are_allocations_known,
            ..Self::new(self.class.clone(), found_class, host_root).0
        })
    }

    pub fn devices(&self) -> &[Device] {
        &self.found_class.inventory.devices
    }

    /// Returns the device with this id, which may be a part or a divided device.
    pub fn find_by_id(&self, id: &DeviceId) -> Option<&Device> {
        self.iter_all_devices().find(|device| device.id == *id)
    }

    /// Iterates over the devices and existing parts of the class, and over the divided devices.
    pub(crate) fn iter_all_devices(&self) -> impl Iterator<Item = &Device> {
        let parents = self
            .divisible_devices
            .iter()
            .map(|parent| &parent.division.whole_device);
        self.devices().iter().chain(parents)
    }

    /// Returns the device or the part with this name in ResourceSlices. For the name of a share,
    /// returns the shared device.
    pub fn find_by_name(&self, name: &str) -> Option<NamedDevice<'_>> {
        for parent in &self.divisible_devices {
            if parent.name == name {
                return Some(NamedDevice::Device(&parent.division.whole_device));
            }
            if let Some((_, part)) = parent.parts().find(|(device_name, _)| *device_name == name) {
                return Some(NamedDevice::Part(parent, part));
            }
        }
        let mut devices = self.device_names.iter().zip(self.devices());
        let matches_name = |(device_name, device): &(&String, &Device)| {
            let mut shares = (0..device.replicas.unwrap_or(0))
                .map(|number| names::build_share_name(device_name, number));
            device_name.as_str() == name || shares.any(|share| share == name)
        };
        devices
            .find(matches_name)
            .map(|(_, device)| NamedDevice::Device(device))
    }

    /// Returns the entries of the class's pool, in the order of the devices. If `includes_parts` is
    /// true, a divisible device is one entry together with its possible parts. Otherwise each
    /// existing device or part is an entry.
    pub fn list_pool_entries(&self, includes_parts: bool) -> Vec<PoolEntry<'_>> {
        let mut entries = Vec::new();
        let mut listed_parents: Vec<&DeviceId> = Vec::new();
        for (name, device) in self.device_names.iter().zip(self.devices()) {
            match self
                .divisible_devices
                .iter()
                .find(|parent| includes_parts && parent.contains_device(device))
            {
                None => entries.push(PoolEntry::Device(name, device)),
                Some(parent) if listed_parents.contains(&&parent.division.whole_device.id) => {}
                Some(parent) => {
                    listed_parents.push(&parent.division.whole_device.id);
                    entries.push(PoolEntry::Divisible(parent));
                }
            }
        }
        entries
    }

    /// Returns the name in ResourceSlices and the health of every device, share and part of the
    /// class.
    pub fn list_health(&self) -> Vec<(String, &Health)> {
        let mut health_entries = Vec::new();
        for (name, device) in self.device_names.iter().zip(self.devices()) {
            let shares = (0..device.replicas.unwrap_or(0))
                .map(|number| names::build_share_name(name, number));
            let names = std::iter::once(name.clone()).chain(shares);
            health_entries.extend(names.map(|name| (name, &device.health)));
        }
        for parent in &self.divisible_devices {
            if !self.device_names.contains(&parent.name) {
                health_entries.push((parent.name.clone(), &parent.division.whole_device.health));
            }
            let parts = parent.parts();
            health_entries.extend(
                parts.map(|(name, part)| (name.to_owned(), self.part_health(parent, part))),
            );
        }
        health_entries
    }

    /// Returns the health of a part. A part that does not exist yet has the health of its device.
    /// However, it is healthy if the device is unhealthy only because it cannot be used as a whole.
    pub fn part_health<'a>(
        &'a self,
        parent: &'a DivisibleDevice,
        part: &PossiblePart,
    ) -> &'a Health {
        let existing_id = part.existing_id.as_ref();
        let existing_device =
            existing_id.and_then(|id| self.devices().iter().find(|device| device.id == *id));
        match existing_device {
            Some(device) => &device.health,
            None if parent.division.whole_device.has_healthy_parts() => &Health::Healthy,
            None => &parent.division.whole_device.health,
        }
    }
}

/// Returns the devices of a class that can be divided. The host must have the programs that create
/// parts. Also returns a message for each reason why devices cannot be divided.
fn find_divisible_devices(
    class: &DeviceClass,
    inventory: &Inventory,
    host_root: &Path,
) -> (Vec<DeviceDivision>, Vec<String>) {
    let programs = class.spec.parts.iter().flat_map(PartProfile::programs);
    let to_warnings = |reason: String| vec![format!("devices are not divided: {reason}")];
    for program in programs {
        match ownership::resolve_trusted_program(host_root, Path::new(&program.to_string())) {
            Ok(_) => {}
            Err(error) if error.is_absent() => return (Vec::new(), Vec::new()),
            Err(error) => return (Vec::new(), to_warnings(error.to_string())),
        }
    }
    match RealHost::open(host_root) {
        _ if class.spec.parts.is_empty() => (Vec::new(), Vec::new()),
        Ok(host) => discover::list_divisible_devices(class, inventory, &host),
        Err(error) => (
            Vec::new(),
            to_warnings(format!("{}: {error}", host_root.display())),
        ),
    }
}
