//! Which devices a request means: its text, parsed, and matched with what
//! there is.

use std::collections::BTreeSet;

use super::RequestError;
use crate::discover::Device;
use crate::name::{ClassName, DeviceId};

/// The longest request, in bytes. 128 ids of the longest sort fit.
pub const MAX_REQUEST: usize = 8192;

/// Which devices a request means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// `void`, or empty: nothing at all.
    Nothing,
    /// `none`: the class's files, but no device and no control node.
    FilesOnly,
    /// `all`: every healthy device.
    All,
    /// A comma list.
    These(Vec<Wanted>),
}

/// One item of a comma list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// An id, an index or an alias.
    Name(String),
    /// The indices from the first to the last.
    Range(u32, u32),
}

impl Selection {
    /// Reads a request's text.
    ///
    /// # Errors
    /// The text is too long or malformed.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        if text.len() > MAX_REQUEST {
            return Err(RequestError::TooLong { length: text.len() });
        }
        match text.trim() {
            "" | "void" => Ok(Selection::Nothing),
            "none" => Ok(Selection::FilesOnly),
            "all" => Ok(Selection::All),
            list => list
                .split(',')
                .map(Wanted::parse)
                .collect::<Result<_, _>>()
                .map(Self::These),
        }
    }

    /// The devices that are meant, each once, in the order of `devices`.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] when an item means no device.
    pub fn choose<'a>(
        &self,
        class: &ClassName,
        devices: &'a [Device],
    ) -> Result<Vec<&'a Device>, RequestError> {
        let wanted = match self {
            Selection::Nothing | Selection::FilesOnly => return Ok(Vec::new()),
            Selection::All => {
                return Ok(devices.iter().filter(|d| d.health.is_healthy()).collect());
            }
            Selection::These(wanted) => wanted,
        };
        let mut chosen = BTreeSet::<usize>::new();
        let mut choose = |name: &str| match meant(devices, name).as_slice() {
            [] => Err(RequestError::Unknown {
                class: class.clone(),
                wanted: name.to_owned(),
                known: known(devices),
            }),
            found => {
                chosen.extend(found);
                Ok(())
            }
        };
        for item in wanted {
            match item {
                Wanted::Name(name) => choose(name)?,
                Wanted::Range(first, last) => {
                    (*first..=*last).try_for_each(|index| choose(&index.to_string()))?;
                }
            }
        }
        Ok(chosen.into_iter().map(|at| &devices[at]).collect())
    }
}

impl Wanted {
    fn parse(item: &str) -> Result<Self, RequestError> {
        let item = item.trim();
        let malformed = || RequestError::Malformed(item.to_owned());
        if DeviceId::try_from(item.to_owned()).is_err() {
            return Err(malformed());
        }
        // Digits and dashes alone are a range, or a slip of the pen: no id is
        // guessed from them.
        if item.contains('-') && item.chars().all(|c| c.is_ascii_digit() || c == '-') {
            let (first, last) = item.split_once('-').ok_or_else(malformed)?;
            return match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) if first <= last => Ok(Wanted::Range(first, last)),
                _ => Err(malformed()),
            };
        }
        Ok(Wanted::Name(item.to_owned()))
    }
}

/// The positions of the devices that a name means. An id, of a device or of
/// one of its replicas, goes before an index, and an index before an alias.
fn meant(devices: &[Device], name: &str) -> Vec<usize> {
    let one = |fits: &dyn Fn(&Device) -> bool| devices.iter().position(fits);
    let found = one(&|device| device.id.as_str() == name)
        .or_else(|| one(&|device| device.has_replica(name)))
        .or_else(|| one(&|device| device.index.as_deref() == Some(name)));
    match found {
        Some(at) => vec![at],
        None => {
            let all = devices.iter().enumerate();
            let named = all.filter(|(_, device)| device.aliases.iter().any(|a| a == name));
            named.map(|(at, _)| at).collect()
        }
    }
}

fn known(devices: &[Device]) -> String {
    match devices {
        [] => "there are none, so check that the driver is loaded".into(),
        [only] => format!("there is {}", only.id),
        [first, .., last] => {
            format!(
                "there are {}, from {} to {}",
                devices.len(),
                first.id,
                last.id
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::excerpt;

    #[test]
    fn a_request_is_a_word_or_a_list() {
        let name = |name: &str| Wanted::Name(name.into());
        let long = "npu-1,".repeat(2000);
        let table: &[(&str, Result<Selection, &str>)] = &[
            ("", Ok(Selection::Nothing)),
            ("void", Ok(Selection::Nothing)),
            ("none", Ok(Selection::FilesOnly)),
            (" all ", Ok(Selection::All)),
            ("npu-1", Ok(Selection::These(vec![name("npu-1")]))),
            ("0,2", Ok(Selection::These(vec![name("0"), name("2")]))),
            (
                "0-3, GPU-1",
                Ok(Selection::These(vec![Wanted::Range(0, 3), name("GPU-1")])),
            ),
            (
                "3-0",
                Err("`3-0` is neither a device nor a range such as 0-3"),
            ),
            (
                "1-2-3",
                Err("`1-2-3` is neither a device nor a range such as 0-3"),
            ),
            (
                "-1",
                Err("`-1` is neither a device nor a range such as 0-3"),
            ),
            (
                "0-",
                Err("`0-` is neither a device nor a range such as 0-3"),
            ),
            (
                "0,,1",
                Err("`` is neither a device nor a range such as 0-3"),
            ),
            (
                "../../sda",
                Err("`../../sda` is neither a device nor a range such as 0-3"),
            ),
            (
                "a/b",
                Err("`a/b` is neither a device nor a range such as 0-3"),
            ),
            (
                "a\0b",
                Err("`a\\0b` is neither a device nor a range such as 0-3"),
            ),
            (
                "a\nb",
                Err("`a\\nb` is neither a device nor a range such as 0-3"),
            ),
            (
                "0-99999999999",
                Err("`0-99999999999` is neither a device nor a range such as 0-3"),
            ),
            (
                &long,
                Err("12000 bytes are too many; a request has at most 8192"),
            ),
        ];
        for (text, wanted) in table {
            let parsed = Selection::parse(text).map_err(|error| error.to_string());
            assert_eq!(
                parsed,
                wanted.clone().map_err(str::to_owned),
                "{}",
                excerpt(text)
            );
        }
    }
}
