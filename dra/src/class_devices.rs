//! The devices of a class, and the parts that they can have, with their names in slices.

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

/// A class, and what the host has of it.
#[derive(Debug, Clone)]
pub struct ClassDevices {
    pub class: DeviceClass,
    /// The devices, and the nodes that a container gets with any of them.
    pub found: FoundClass,
    /// The devices' names in slices, in the same order.
    pub names: Vec<String>,
    /// The devices that can be divided, or are.
    pub wholes: Vec<Whole>,
    /// Whether it is known which of them containers have by the device plugin. If not, no claim
    /// may get one.
    pub is_known: bool,
}

/// A device that can be divided.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Its name in slices.
    pub name: String,
    pub divisible: Divisible,
    /// The names of its parts, in the same order.
    pub names: Vec<String>,
}

/// What a slice names.
#[derive(Debug, Clone, Copy)]
pub enum Named<'a> {
    Device(&'a Device),
    /// Which part of which device.
    Part(&'a Whole, &'a PossiblePart),
}

/// What a pool consists of.
#[derive(Debug, Clone, Copy)]
pub enum Offered<'a> {
    Device(&'a str, &'a Device),
    /// A device, and its parts.
    Whole(&'a Whole),
}

impl Whole {
    /// The parts, with their names.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &PossiblePart)> {
        let names = self.names.iter().map(String::as_str);
        names.zip(&self.divisible.parts)
    }

    /// Whether a device is this one or a part of it.
    fn contains_device(&self, device: &Device) -> bool {
        *device.part_of.as_ref().unwrap_or(&device.id) == self.divisible.whole.id
    }
}

impl ClassDevices {
    /// The devices of a class on the host whose root is at `root`; and why some are not
    /// divided, a line each.
    pub fn new(class: DeviceClass, found: FoundClass, root: &Path) -> (Self, Vec<String>) {
        let inventory = &found.inventory;
        let (divisible, warnings) = divisible(&class, inventory, root);
        // Also of those that are divided, so that names stay when parts are made.
        let mut ids: Vec<&DeviceId> = inventory.devices.iter().map(|one| &one.id).collect();
        let wholes = divisible.iter().map(|one| &one.whole.id);
        let divided: Vec<_> = wholes.filter(|id| !ids.contains(id)).collect();
        ids.extend(divided);
        let mut names = names::devices(&ids);
        // A part that is made has no name beside that which it had before.
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

    /// The same class, as the host is now.
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

    /// The device with this id, which may be divided.
    pub fn with_id(&self, id: &DeviceId) -> Option<&Device> {
        let wholes = self.wholes.iter().map(|whole| &whole.divisible.whole);
        let mut all = self.devices().iter().chain(wholes);
        all.find(|device| device.id == *id)
    }

    /// What a slice calls so: a device, one of its shares, or a part.
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

    /// What the pool consists of, in the order of the devices: the same, whichever parts are
    /// made. Without `parts`, the devices that there are.
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

    /// The health of all devices, their shares and their parts, by their names.
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

    /// The health of a part: before it is made, that of its device as far as it concerns parts.
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

/// The devices that can be divided, if the programs for it are there; and what is wrong, a
/// line each.
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
