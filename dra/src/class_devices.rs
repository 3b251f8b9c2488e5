//! The devices of a class and their possible parts, with their names in ResourceSlices.

use std::io;
use std::path::Path;

use device_class::class::Parts;
use device_class::discover::{
    self, Device, Divisible, FoundClass, Health, Inventory, PossiblePart,
};
use device_class::host::RealHost;
use device_class::name::DeviceId;
use device_class::{DeviceClass, ownership};

use crate::names;

/// A class and its devices on the host.
#[derive(Debug, Clone)]
pub struct ClassDevices {
    pub class: DeviceClass,
    /// The devices, and the device nodes that a container gets together with each of them.
    pub found: FoundClass,
    /// The names of the devices in slices, in the same order.
    pub names: Vec<String>,
    /// The devices that can be divided or are divided already.
    pub divisible_devices: Vec<DivisibleDevice>,
    /// Whether the allocations of the device plugin are known. If they are not, no claim may get a
    /// device.
    pub are_allocations_known: bool,
}

/// A device that can be divided.
#[derive(Debug, Clone)]
pub struct DivisibleDevice {
    /// The device's name in slices.
    pub name: String,
    pub divisible: Divisible,
    /// The names of the possible parts, in the same order.
    pub names: Vec<String>,
}

/// The object that has a given name in slices.
#[derive(Debug, Clone, Copy)]
pub enum NamedDevice<'a> {
    Device(&'a Device),
    /// A possible part of a device.
    Part(&'a DivisibleDevice, &'a PossiblePart),
}

/// An entry of a pool.
#[derive(Debug, Clone, Copy)]
pub enum PoolEntry<'a> {
    Device(&'a str, &'a Device),
    /// A divisible device with its parts.
    Divisible(&'a DivisibleDevice),
}

impl DivisibleDevice {
    /// Returns the possible parts, with their names.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &PossiblePart)> {
        let names = self.names.iter().map(String::as_str);
        names.zip(&self.divisible.parts)
    }

    /// Returns whether a device is this device or a part of it.
    fn contains_device(&self, device: &Device) -> bool {
        *device.part_of.as_ref().unwrap_or(&device.id) == self.divisible.whole.id
    }
}

impl ClassDevices {
    /// Creates the value from devices found on the host with the root directory `root`. Also
    /// returns one line for each reason why devices cannot be divided.
    pub fn new(class: DeviceClass, found: FoundClass, root: &Path) -> (Self, Vec<String>) {
        let inventory = &found.inventory;
        let (divisible, warnings) = find_divisible(&class, inventory, root);
        // Divided devices get names too, so that no name changes when parts are created.
        let mut ids: Vec<&DeviceId> = inventory.devices.iter().map(|device| &device.id).collect();
        let divided: Vec<_> = divisible
            .iter()
            .map(|device| &device.whole.id)
            .filter(|id| !ids.contains(id))
            .collect();
        ids.extend(divided);
        let mut names = names::device_names(&ids);
        // An existing part keeps the name that it had before it was created.
        let is_part = |device: &Device| {
            let mut parents = divisible.iter().map(|parent| &parent.whole.id);
            parents.any(|id| device.part_of.as_ref() == Some(id))
        };
        let undivided_names: Vec<String> = inventory
            .devices
            .iter()
            .zip(&names)
            .filter(|(device, _)| !is_part(device))
            .map(|(_, name)| name.clone())
            .collect();
        let mut divisible_devices = Vec::new();
        for divisible in &divisible {
            let index = ids.iter().position(|id| **id == divisible.whole.id);
            let name = index.map(|index| names[index].clone()).unwrap_or_default();
            let mut names: Vec<String> = Vec::new();
            for part in &divisible.parts {
                names.push(names::part_name(
                    &name,
                    &part.profile,
                    part.placement(),
                    |name| {
                        let mut used_names = undivided_names.iter().chain(&names);
                        used_names.any(|used| used == name)
                    },
                ));
            }
            divisible_devices.push(DivisibleDevice {
                names,
                divisible: divisible.clone(),
                name,
            });
        }
        names.truncate(inventory.devices.len());
        let devices = ClassDevices {
            class,
            found,
            names,
            divisible_devices,
            are_allocations_known: true,
        };
        (devices, warnings)
    }

    /// Looks up the class's devices on the host again.
    pub fn rediscover(&self, root: &Path) -> io::Result<Self> {
        let host = RealHost::open(root)?;
        let found = FoundClass {
            inventory: discover::devices(&self.class, &host),
            edits: self.found.edits.clone(),
        };
        Ok(ClassDevices {
            are_allocations_known: self.are_allocations_known,
            ..Self::new(self.class.clone(), found, root).0
        })
    }

    pub fn devices(&self) -> &[Device] {
        &self.found.inventory.devices
    }

    /// Returns the device with this id, even if it is divided.
    pub fn find_by_id(&self, id: &DeviceId) -> Option<&Device> {
        let parents = self
            .divisible_devices
            .iter()
            .map(|parent| &parent.divisible.whole);
        let mut devices = self.devices().iter().chain(parents);
        devices.find(|device| device.id == *id)
    }

    /// Returns the device, share or part with this name in slices.
    pub fn find_by_name(&self, name: &str) -> Option<NamedDevice<'_>> {
        for parent in &self.divisible_devices {
            if parent.name == name {
                return Some(NamedDevice::Device(&parent.divisible.whole));
            }
            if let Some((_, part)) = parent.parts().find(|(device_name, _)| *device_name == name) {
                return Some(NamedDevice::Part(parent, part));
            }
        }
        let mut devices = self.names.iter().zip(self.devices());
        let has_name = |(device_name, device): &(&String, &Device)| {
            let mut shares =
                (0..device.replicas.unwrap_or(0)).map(|n| names::share_name(device_name, n));
            device_name.as_str() == name || shares.any(|share| share == name)
        };
        devices
            .find(has_name)
            .map(|(_, device)| NamedDevice::Device(device))
    }

    /// Returns the entries of the class's pool, in the order of the devices. If `parts` is set,
    /// they do not depend on which parts exist; otherwise only existing devices are returned.
    pub fn list_entries(&self, parts: bool) -> Vec<PoolEntry<'_>> {
        let mut offered = Vec::new();
        let mut offered_parents: Vec<&DeviceId> = Vec::new();
        for (name, device) in self.names.iter().zip(self.devices()) {
            match self
                .divisible_devices
                .iter()
                .find(|parent| parts && parent.contains_device(device))
            {
                None => offered.push(PoolEntry::Device(name, device)),
                Some(parent) if offered_parents.contains(&&parent.divisible.whole.id) => {}
                Some(parent) => {
                    offered_parents.push(&parent.divisible.whole.id);
                    offered.push(PoolEntry::Divisible(parent));
                }
            }
        }
        offered
    }

    /// Returns the name and the health of every device, share and part.
    pub fn list_health(&self) -> Vec<(String, &Health)> {
        let mut healths = Vec::new();
        for (name, device) in self.names.iter().zip(self.devices()) {
            let shares = (0..device.replicas.unwrap_or(0)).map(|n| names::share_name(name, n));
            let names = std::iter::once(name.clone()).chain(shares);
            healths.extend(names.map(|name| (name, &device.health)));
        }
        for parent in &self.divisible_devices {
            if !self.names.contains(&parent.name) {
                healths.push((parent.name.clone(), &parent.divisible.whole.health));
            }
            let parts = parent.parts();
            healths.extend(
                parts.map(|(name, part)| (name.to_owned(), self.part_health(parent, part))),
            );
        }
        healths
    }

    /// Returns the health of a part. A part that does not exist yet has the health of its device,
    /// as far as that affects parts.
    pub fn part_health<'a>(
        &'a self,
        parent: &'a DivisibleDevice,
        part: &PossiblePart,
    ) -> &'a Health {
        let existing = part.made.as_ref();
        let existing =
            existing.and_then(|id| self.devices().iter().find(|device| device.id == *id));
        match existing {
            Some(device) => &device.health,
            None if parent.divisible.whole.is_healthy_in_parts() => &Health::Healthy,
            None => &parent.divisible.whole.health,
        }
    }
}

/// Finds the devices that can be divided, if the host has the programs for it. Also returns one
/// line for each problem.
fn find_divisible(
    class: &DeviceClass,
    inventory: &Inventory,
    root: &Path,
) -> (Vec<Divisible>, Vec<String>) {
    let programs = class.spec.parts.iter().flat_map(Parts::programs);
    let warn = |reason: String| vec![format!("devices are not divided: {reason}")];
    for program in programs {
        match ownership::program(root, Path::new(&program.to_string())) {
            Ok(_) => {}
            Err(error) if error.is_absent() => return (Vec::new(), Vec::new()),
            Err(error) => return (Vec::new(), warn(error.to_string())),
        }
    }
    match RealHost::open(root) {
        _ if class.spec.parts.is_empty() => (Vec::new(), Vec::new()),
        Ok(host) => discover::divisible(class, inventory, &host),
        Err(error) => (Vec::new(), warn(format!("{}: {error}", root.display()))),
    }
}
