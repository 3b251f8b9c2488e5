//! Converts devices and classes to the texts in attachment records, and back. The texts must not
//! change, because other versions of Boathook read them. A device is written as `CLASS ID`, and a
//! class as `CLASS`.

use device_class::name::{ClassName, DeviceId, DeviceRef, NameError};
use injection_plan::plan::StepOwner;
use injection_plan::request::DeviceListItem;

/// The character between the class and the id of a device. Neither a class name nor an id can
/// contain a space.
const OWNER_SEPARATOR: char = ' ';

/// Parses the id of a device. Older versions of Boathook sometimes wrote a name in place of an id,
/// such as the path by which the device was requested. Such a text is converted to a valid id.
fn parse_id(text: &str) -> Result<DeviceId, NameError> {
    DeviceId::try_from(text.to_owned()).or_else(|_| DeviceId::from_hardware(text))
}

/// Returns a substitute id for an unplugged device, for the case that another device has its id
/// now. The substitute is made from the name by which the device was requested.
pub fn make_substitute_id(name: &DeviceListItem) -> Option<DeviceId> {
    parse_id(&name.to_name_text()).ok()
}

fn parse_owner(text: &str) -> Result<StepOwner, NameError> {
    let Some((class, id)) = text.split_once(OWNER_SEPARATOR) else {
        return ClassName::try_from(text.to_owned()).map(StepOwner::Class);
    };
    let class = ClassName::try_from(class.to_owned())?;
    let id = parse_id(id)?;
    Ok(StepOwner::Device(DeviceRef { class, id }))
}

fn format_device(device: &DeviceRef) -> String {
    format!(
        "{}{OWNER_SEPARATOR}{}",
        device.class.as_str(),
        device.id.as_str()
    )
}

fn format_owner(owner: &StepOwner) -> String {
    match owner {
        StepOwner::Device(device) => format_device(device),
        StepOwner::Class(class) => class.as_str().to_owned(),
    }
}

/// Serializes the owners of a rule or of a file as an array of texts, such as
/// `["npu npu-0", "npu"]`. The owners are the devices and classes that need the rule or file.
pub(super) mod owners {
    use injection_plan::plan::StepOwner;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(crate) fn serialize<S: Serializer>(
        owners: &[StepOwner],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(owners.iter().map(super::format_owner))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<StepOwner>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(deserializer)?;
        let owners = texts.iter().map(|text| super::parse_owner(text));
        owners.collect::<Result<_, _>>().map_err(Error::custom)
    }
}

/// Deserializes the id of a device, for `#[serde(deserialize_with)]`. Accepts the names that older
/// versions wrote in place of ids.
pub(super) mod device_id {
    use device_class::name::DeviceId;
    use serde::de::{Deserialize, Deserializer, Error};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeviceId, D::Error> {
        super::parse_id(&String::deserialize(deserializer)?).map_err(Error::custom)
    }
}

/// Deserializes the id of a device that may be absent, for `#[serde(deserialize_with)]`.
pub(super) mod optional_device_id {
    use device_class::name::DeviceId;
    use serde::de::{Deserialize, Deserializer, Error};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DeviceId>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let id = text.map(|text| super::parse_id(&text));
        id.transpose().map_err(Error::custom)
    }
}

/// Deserializes the ids of several devices, for `#[serde(deserialize_with)]`.
pub(super) mod device_ids {
    use device_class::name::DeviceId;
    use serde::de::{Deserialize, Deserializer, Error};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<DeviceId>, D::Error> {
        let texts: Vec<String> = Vec::deserialize(deserializer)?;
        let ids = texts.iter().map(|text| super::parse_id(text));
        ids.collect::<Result<_, _>>().map_err(Error::custom)
    }
}

/// Serializes and deserializes the name by which a device was requested, as an optional string.
pub(super) mod name {
    use injection_plan::request::{DeviceListItem, item_name};
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(transparent)]
    struct SerializedName(#[serde(with = "item_name")] DeviceListItem);

    pub(crate) fn serialize<S: Serializer>(
        name: &Option<DeviceListItem>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        name.clone().map(SerializedName).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DeviceListItem>, D::Error> {
        let name = Option::<SerializedName>::deserialize(deserializer)?;
        Ok(name.map(|SerializedName(item)| item))
    }
}

/// Serializes a map whose keys are devices. Each key becomes the text `CLASS ID`, because the keys
/// of JSON objects are strings.
pub(super) mod by_device {
    use std::collections::BTreeMap;

    use device_class::name::DeviceRef;
    use injection_plan::plan::StepOwner;
    use serde::Serialize;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(crate) fn serialize<S: Serializer, T: Serialize>(
        values: &BTreeMap<DeviceRef, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let values = values.iter();
        serializer.collect_map(values.map(|(device, value)| (super::format_device(device), value)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<DeviceRef, T>, D::Error> {
        let texts: BTreeMap<String, T> = BTreeMap::deserialize(deserializer)?;
        let values = texts.into_iter().map(|(text, value)| {
            match super::parse_owner(&text).map_err(Error::custom)? {
                StepOwner::Device(device) => Ok((device, value)),
                StepOwner::Class(_) => Err(Error::custom(format_args!("{text:?} is no device"))),
            }
        });
        values.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::attachment::AttachmentRecord;

    /// Returns a record as a version before devices had a type wrote it.
    fn record_with(name: &str, device: &str, owner: &str) -> String {
        format!(
            concat!(
                r#"{{"id":"c1","pid":7,"started":9,"bundle":"/b","is_init":false,"cgroup":"","#,
                r#""cgroup_inode":0,"devices":[{{"class":"chips","device":{},"asked":"","#,
                r#""forced":false,"name":{}}}],"waiting":[{{"class":"chips","awaited":"all","#,
                r#""detached":["chip-2"]}},{{"class":"chips","awaited":{{"device":{{"name":"\"x 9\"","#,
                r#""path":"/dev/x"}}}}}}],"rules":[{{"rule":"c 10:183 rw","for":[{},"chips"]}}],"#,
                r#""made":[{{"path":"/dev/a","how":{{"bound":2743}},"before":null,"for":[{}]}}],"#,
                r#""whole":false,"was_given_nothing":false,"told":{{{}:[]}}}}"#,
            ),
            device, name, owner, owner, owner
        )
    }

    #[test]
    fn a_record_of_an_earlier_version_is_read_and_written_as_it_was() {
        for (name, device) in [("A7", "chip-0"), ("\\\"A, 7\\\"", "chip-0"), ("A7", "A7")] {
            let quoted = |text: &str| format!("\"{text}\"");
            let owner = quoted(&format!("chips {device}"));
            let text = record_with(&quoted(name), &quoted(device), &owner);
            let record: AttachmentRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
        }
    }

    /// The device is unplugged, and another device has its id.
    #[test]
    fn a_name_in_place_of_an_id_is_the_same_device_everywhere() {
        let name = r#""\"/dev/serial/by-id/a\"""#;
        let owner = r#""chips \"/dev/serial/by-id/a\"""#;
        let text = record_with(name, name, owner);
        let mut record: AttachmentRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(record.devices[0].label(), "\"/dev/serial/by-id/a\"");
        let device = record.devices[0].device_ref();
        assert!(record.announcements.contains_key(&device));
        assert_eq!(record.remove_devices(|_| true).files.len(), 1);
        let text = serde_json::to_string(&record).unwrap();
        let read_record: AttachmentRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read_record, record);
    }

    #[test]
    fn a_text_that_names_no_device_is_an_error() {
        let valid_text = record_with("\"A7\"", "\"chip-0\"", "\"chips chip-0\"");
        for (right, wrong, reason) in [
            (
                "\"chips chip-0\"",
                "\"ch/ips chip-0\"",
                "class name `ch/ips`",
            ),
            ("\"chips chip-0\"", "\"chips \"", "device id is empty"),
            ("\"chips\"]", "\"\"]", "class name is empty"),
            (
                "\"class\":\"chips\"",
                "\"class\":\"a b\"",
                "class name `a b`",
            ),
            (
                "\"device\":\"chip-0\"",
                "\"device\":\"\"",
                "device id is empty",
            ),
            (
                "\"name\":\"A7\"",
                "\"name\":\"A7,A8\"",
                "not the name of one device",
            ),
            (
                "\"name\":\"\\\"x 9\\\"\"",
                "\"name\":\"\\\"x\"",
                "not the name of one device",
            ),
            ("c 10:183 rw", "c 10:183", "is no device rule"),
            (
                "\"told\":{\"chips chip-0\"",
                "\"told\":{\"chips\"",
                "is no device",
            ),
        ] {
            let text = valid_text.replacen(right, wrong, 1);
            assert_ne!(text, valid_text, "{right}");
            let error = serde_json::from_str::<AttachmentRecord>(&text).unwrap_err();
            assert!(error.to_string().contains(reason), "{wrong}: {error}");
        }
    }
}
