//! The devices of a request: its text is parsed, and matched with the existing
//! devices.

use device_class::inserted;
use std::collections::{BTreeSet, HashSet};

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::{Device, Inventory};
use device_class::name::DeviceId;

use super::RequestError;
use super::names::{DeviceNames, Meaning};

/// The longest value of a variable or annotation that is read, in bytes. It
/// bounds every loop over a request; 1,000 ids of the maximum length fit.
pub const MAX_REQUEST: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// `void`, or an empty list: nothing at all.
    Nothing,
    /// `none`: the class's files, but no device and no control node.
    FilesOnly,
    /// `all`: every healthy device.
    All,
    /// A comma-separated list.
    These(Vec<Item>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An id, an index or an alias.
    Name(String),
    /// The indices from the first to the last.
    Range(u32, u32),
    /// A CDI name: of the devices of this resource the one with the name, or `all`.
    Of { resource: String, name: String },
}

impl Selection {
    /// Parses a request: a comma-separated list, whose empty items are ignored.
    /// A keyword anywhere in the list applies to the whole list: `void` before the others,
    /// and of `none` and `all` the first.
    pub fn parse(text: &str, class: &ClassSpec) -> Result<Self, RequestError> {
        if text.len() > MAX_REQUEST {
            return Err(RequestError::TooLong { length: text.len() });
        }
        let items = text.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty());
        let items: Vec<(Option<&str>, &str)> = items
            .map(|item| unqualified(item, class))
            .collect::<Result<_, _>>()?;
        let at = |word: &str| {
            items
                .iter()
                .position(|(kind, item)| kind.is_none() && item.eq_ignore_ascii_case(word))
        };
        if items.is_empty() || at("void").is_some() {
            return Ok(Selection::Nothing);
        }
        match (at("none"), at("all")) {
            (None, None) => {}
            (Some(none), Some(all)) if all < none => return Ok(Selection::All),
            (Some(_), _) => return Ok(Selection::FilesOnly),
            (None, Some(_)) => return Ok(Selection::All),
        }
        // A mistake is as unknown as a name that no device has.
        let parse = |(kind, item): (Option<&str>, &str)| match (Item::parse(item), kind) {
            (Ok(_), Some(kind)) => Ok(Item::Of {
                resource: kind.to_owned(),
                name: item.to_owned(),
            }),
            (Err(_), _) if class.request.ignores_unknown => Ok(Item::Name(item.to_owned())),
            (parsed, _) => parsed,
        };
        let items = items.into_iter().map(parse);
        items.collect::<Result<_, _>>().map(Self::These)
    }

    /// Whether a text requests nothing, whichever class it is for: an empty list, or one with
    /// `void`.
    pub fn is_nothing(text: &str) -> bool {
        let items = text.split(',').map(str::trim);
        let mut items = items.filter(|item| !item.is_empty()).peekable();
        items.peek().is_none() || items.any(|item| item.eq_ignore_ascii_case("void"))
    }

    /// The requested devices, each once, in the order of the inventory. The name of a
    /// device that is divided means it without its parts.
    pub fn choose<'a>(
        &self,
        class: &DeviceClass,
        inventory: &'a Inventory,
    ) -> Result<Vec<&'a Device>, RequestError> {
        let devices = inventory.devices.as_slice();
        let items = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => {
                return Ok(devices.iter().filter(|d| d.health.is_healthy()).collect());
            }
            Selection::These(items) => items,
        };
        let names = DeviceNames::of(devices);
        let divided = DeviceNames::of(&inventory.divided);
        let mut wholes = BTreeSet::<usize>::new();
        let mut chosen = BTreeSet::<usize>::new();
        // An alias may mean many devices, and a request repeat it.
        let mut aliases = HashSet::new();
        let mut choose = |name: &str| match names.meaning(name) {
            _ if divided.meaning(name).is_some() => {
                match divided.meaning(name) {
                    Some(Meaning::One(at)) => wholes.extend([at]),
                    Some(Meaning::All(found)) => wholes.extend(found),
                    None => {}
                }
                Ok(())
            }
            None if class.spec.request.ignores_unknown => Ok(()),
            None => Err(RequestError::Unknown {
                class: class.name.clone(),
                wanted: name.to_owned(),
                known: known(class, inventory),
            }),
            Some(Meaning::One(at)) => {
                chosen.insert(at);
                Ok(())
            }
            Some(Meaning::All(found)) => {
                if aliases.insert(found.as_ptr()) {
                    chosen.extend(found);
                }
                Ok(())
            }
        };
        let (mut ranges, mut of_resources) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Name(name) => choose(name)?,
                Item::Range(first, last) => ranges.push((*first, *last)),
                Item::Of { resource, name } => {
                    let found = of_resource(&names, devices, resource, name);
                    if found.is_empty() && !class.spec.request.ignores_unknown {
                        return Err(RequestError::Unknown {
                            class: class.name.clone(),
                            wanted: format!("{resource}={name}"),
                            known: known(class, inventory),
                        });
                    }
                    of_resources.extend(found);
                }
            }
        }
        for (first, last) in merged(ranges) {
            // Ends at the first index that no device has.
            // One that ignores these has no more devices than the inventory.
            let most = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            let last = match class.spec.request.ignores_unknown {
                true => last.min(most),
                false => last,
            };
            (first..=last).try_for_each(|index| choose(&index.to_string()))?;
        }
        chosen.extend(of_resources);
        let wholes = wholes.into_iter().map(|at| &inventory.divided[at]);
        Ok(wholes
            .chain(chosen.into_iter().map(|at| &devices[at]))
            .collect())
    }

    /// The names in the request that no device has.
    pub fn unknown<'s>(&'s self, inventory: &Inventory) -> Vec<&'s str> {
        let Selection::These(items) = self else {
            return Vec::new();
        };
        let names = DeviceNames::of(&inventory.devices);
        let divided = DeviceNames::of(&inventory.divided);
        let items = items.iter().filter_map(|item| match item {
            Item::Name(name) => Some(name.as_str()),
            Item::Range(..) | Item::Of { .. } => None,
        });
        items
            .filter(|name| names.meaning(name).is_none() && divided.meaning(name).is_none())
            .collect()
    }
}

/// The devices of a resource with a name, as positions; with `all` the healthy ones.
fn of_resource(
    names: &DeviceNames<'_>,
    devices: &[Device],
    resource: &str,
    name: &str,
) -> Vec<usize> {
    let is_of = |at: &usize| devices[*at].resource.as_str() == resource;
    if name.eq_ignore_ascii_case("all") {
        let all = 0..devices.len();
        let all = all.filter(|at| devices[*at].health.is_healthy());
        return all.filter(is_of).collect();
    }
    match names.meaning(name) {
        None => Vec::new(),
        Some(Meaning::One(at)) => Some(at).filter(is_of).into_iter().collect(),
        Some(Meaning::All(found)) => found.iter().copied().filter(is_of).collect(),
    }
}

/// The item without the kind of a CDI name, `vendor.com/class=name`, which must be a
/// resource of the class; and the kind, if devices of the class have different ones.
fn unqualified<'a>(
    item: &'a str,
    class: &ClassSpec,
) -> Result<(Option<&'a str>, &'a str), RequestError> {
    match item.split_once('=') {
        None => Ok((None, item)),
        Some((kind, name)) if class.request.kinds.iter().any(|known| known == kind) => {
            Ok((None, name))
        }
        Some((kind, name))
            if class.resource.attributes().next().is_none() && class.may_offer(kind) =>
        {
            Ok((None, name))
        }
        // `none` and `void` are of no device.
        Some((kind, name)) if class.may_offer(kind) => match name.to_ascii_lowercase().as_str() {
            "none" | "void" => Ok((None, name)),
            _ => Ok((Some(kind), name)),
        },
        Some((kind, _)) => Err(RequestError::OtherKind {
            item: item.to_owned(),
            kind: kind.to_owned(),
        }),
    }
}

/// The same numbers as sorted ranges that do not overlap.
fn merged(ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let ranges: BTreeSet<(u32, u32)> = inserted(ranges);
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

impl Item {
    fn parse(item: &str) -> Result<Self, RequestError> {
        let malformed = || RequestError::Malformed(item.to_owned());
        // A node, or a link such as those in /dev/serial/by-id, is named as it is called.
        let item = match item.strip_prefix("/dev/") {
            Some(path) => path.rsplit('/').next().unwrap_or(path),
            None => item,
        };
        // Digits and dashes alone are a range or a mistake: no id is guessed
        // from them.
        if item.contains('-') && item.chars().all(|c| matches!(c, '0'..='9' | '-' | ' ')) {
            let (first, last) = item.split_once('-').ok_or_else(malformed)?;
            return match (first.trim_end().parse(), last.trim_start().parse()) {
                (Ok(first), Ok(last)) if first <= last => Ok(Item::Range(first, last)),
                (Ok(first), Ok(last)) => Err(RequestError::Backwards { first, last }),
                _ => Err(malformed()),
            };
        }
        // The names of parts of devices may have slashes.
        if !DeviceId::is_name(&item.replace('/', ":")) {
            return Err(malformed());
        }
        Ok(Item::Name(item.to_owned()))
    }
}

fn known(class: &DeviceClass, inventory: &Inventory) -> String {
    let hidden = inventory.hidden.len();
    let known = match inventory.devices.as_slice() {
        [] if hidden > 0 => "there are no others".into(),
        [] => "there are none, so check that the driver is loaded".into(),
        [only] => format!("there is {}", only.id),
        [first, .., last] => format!(
            "there are {}, from {} to {}; `boathook list {}` shows their names",
            inventory.devices.len(),
            first.id,
            last.id,
            class.name
        ),
    };
    match hidden {
        0 => known,
        _ => format!("{known}; `only` or `except` in config.toml hides {hidden}"),
    }
}
