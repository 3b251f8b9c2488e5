//! The devices of a class and their possible parts, with their names in resource slices.

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
    /// The devices, and the nodes that a container gets with each of them.
    pub found: FoundClass,
    /// The devices' names in slices, in the same order.
    pub names: Vec<String>,
    /// The devices that can be divided, or are.
    pub wholes: Vec<Whole>,
    /// Whether it is known which of the devices the device plugin has given to containers. If
    /// it is not known, no claim may get a device.
    pub is_known: bool,
}

/// A device that can be divided.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The device's name in slices.
    pub name: String,
    pub divisible: Divisible,
    /// The names of the possible parts, in the same order.
    pub names: Vec<String>,
}

/// The meaning of a name in a slice.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    Device(&'a Device),
    /// A possible part of a device.
    Part(&'a Whole, &'a PossiblePart),
}

/// An entry of a pool.
#[derive(Debug, Clone, Copy)]
pub enum Offered<'a> {
    Device(&'a str, &'a Device),
    /// A device that can be divided, and its parts.
    Whole(&'a Whole),
}

impl Whole {
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
    /// Takes the devices that were found on the host whose root directory is `root`. Also
    /// returns why some devices cannot be divided, one line for each.
    pub fn new(class: DeviceClass, found: FoundClass, root: &Path) -> (Self, Vec<String>) {
        let inventory = &found.inventory;
        let (divisible, warnings) = divisible(&class, inventory, root);
        // Devices that are divided are named as well, so that names do not change when parts
        // are made.
        let mut ids: Vec<&DeviceId> = inventory.devices.iter().map(|one| &one.id).collect();
        let wholes = divisible.iter().map(|one| &one.whole.id);
        let divided: Vec<_> = wholes.filter(|id| !ids.contains(id)).collect();
        ids.extend(divided);
        let mut names = names::devices(&ids);
        // A part that exists keeps the name that it had as a possible part.
        let is_made = |device: &Device| {
            let mut wholes = divisible.iter();
            wholes.any(|one| device.part_of.as_ref() == Some(&one.whole.id))
        };
        let others = inventory.devices.iter().zip(&names);
        let others = others.filter(|(device, _)| !is_made(device));
        let others: Vec<String> = others.map(|(_, name)| name.clone()).collect();
        let mut wholes = Vec::new();
        for divisible in &divisible {
            let at = ids.iter().position(|id| **id == divisible.whole.id);
            let name = at.map(|at| names[at].clone()).unwrap_or_default();
            let mut names: Vec<String> = Vec::new();
            for part in &divisible.parts {
                names.push(names::part(
                    &name,
                    &part.profile,
                    part.placement(),
                    |name| {
                        let mut taken = others.iter().chain(&names);
                        taken.any(|other| other == name)
                    },
                ));
            }
            wholes.push(Whole {
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
            wholes,
            is_known: true,
        };
        (devices, warnings)
    }

    /// Looks up the devices of the class again.
    pub fn again(&self, root: &Path) -> io::Result<Self> {
        let host = RealHost::open(root)?;
        let found = FoundClass {
            inventory: discover::devices(&self.class, &host),
            edits: self.found.edits.clone(),
        };
        Ok(ClassDevices {
            is_known: self.is_known,
            ..Self::new(self.class.clone(), found, root).0
        })
    }

    /// The devices.
    pub fn devices(&self) -> &[Device] {
        &self.found.inventory.devices
    }

    /// Returns the device with this id, even if it is divided.
    pub fn with_id(&self, id: &DeviceId) -> Option<&Device> {
        let wholes = self.wholes.iter().map(|whole| &whole.divisible.whole);
        let mut all = self.devices().iter().chain(wholes);
        all.find(|device| device.id == *id)
    }

    /// Returns the device, share or part with this name in slices.
    pub fn named(&self, name: &str) -> Option<Named<'_>> {
        for whole in &self.wholes {
            if whole.name == name {
                return Some(Named::Device(&whole.divisible.whole));
            }
            if let Some((_, part)) = whole.parts().find(|(own, _)| *own == name) {
                return Some(Named::Part(whole, part));
            }
        }
        let mut all = self.names.iter().zip(self.devices());
        let is_it = |(own, device): &(&String, &Device)| {
            let mut shares = (0..device.replicas.unwrap_or(0)).map(|n| names::share(own, n));
            own.as_str() == name || shares.any(|share| share == name)
        };
        all.find(is_it).map(|(_, device)| Named::Device(device))
    }

    /// Returns the entries of the pool, in the order of the devices. They do not depend on
    /// which parts exist. Without `parts`, returns only the devices that exist now.
    pub fn offered(&self, parts: bool) -> Vec<Offered<'_>> {
        let mut offered = Vec::new();
        let mut seen: Vec<&DeviceId> = Vec::new();
        for (name, device) in self.names.iter().zip(self.devices()) {
            match self
                .wholes
                .iter()
                .find(|whole| parts && whole.contains_device(device))
            {
                None => offered.push(Offered::Device(name, device)),
                Some(whole) if seen.contains(&&whole.divisible.whole.id) => {}
                Some(whole) => {
                    seen.push(&whole.divisible.whole.id);
                    offered.push(Offered::Whole(whole));
                }
            }
        }
        offered
    }

    /// Returns the health of all devices, shares and parts, with their names.
    pub fn healths(&self) -> Vec<(String, &Health)> {
        let mut all = Vec::new();
        for (name, device) in self.names.iter().zip(self.devices()) {
            let shares = (0..device.replicas.unwrap_or(0)).map(|n| names::share(name, n));
            let names = std::iter::once(name.clone()).chain(shares);
            all.extend(names.map(|name| (name, &device.health)));
        }
        for whole in &self.wholes {
            if !self.names.contains(&whole.name) {
                all.push((whole.name.clone(), &whole.divisible.whole.health));
            }
            let parts = whole.parts();
            all.extend(parts.map(|(name, part)| (name.to_owned(), self.health(whole, part))));
        }
        all
    }

    /// Returns the health of a part. A part that does not exist yet has the health of its
    /// device, as far as that concerns parts.
    pub fn health<'a>(&'a self, whole: &'a Whole, part: &PossiblePart) -> &'a Health {
        let made = part.made.as_ref();
        let made = made.and_then(|id| self.devices().iter().find(|device| device.id == *id));
        match made {
            Some(device) => &device.health,
            None if whole.divisible.whole.is_healthy_in_parts() => &Health::Healthy,
            None => &whole.divisible.whole.health,
        }
    }
}

/// Returns the devices that can be divided, if the host has the programs for it. Also returns
/// one line for each problem.
fn divisible(
    class: &DeviceClass,
    inventory: &Inventory,
    root: &Path,
) -> (Vec<Divisible>, Vec<String>) {
    let programs = class.spec.parts.iter().flat_map(Parts::programs);
    let wrong = |reason: String| vec![format!("devices are not divided: {reason}")];
    for program in programs {
        match ownership::program(root, Path::new(&program.to_string())) {
            Ok(_) => {}
            Err(error) if error.is_absent() => return (Vec::new(), Vec::new()),
            Err(error) => return (Vec::new(), wrong(error.to_string())),
        }
    }
    match RealHost::open(root) {
        _ if class.spec.parts.is_empty() => (Vec::new(), Vec::new()),
        Ok(host) => discover::divisible(class, inventory, &host),
        Err(error) => (Vec::new(), wrong(format!("{}: {error}", root.display()))),
    }
}
