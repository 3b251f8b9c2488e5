//! What an OCI runtime gives the hook: the State, and config.json.

use std::path::Path;

use hook::oci::{Bundle, State};
use host_files::json_text;
use serde_json::Value;

pub(crate) fn state(bytes: &[u8]) {
    let Ok(state) = State::read(bytes) else {
        return;
    };
    // What is not read may have escapes for half a surrogate pair.
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    // The parser accepts an object's values as a list, too.
    if value.is_object() {
        assert_eq!(value["id"], *state.id);
        assert_eq!(value["pid"], state.pid);
        assert_eq!(
            value["bundle"].as_str().map(Path::new),
            Some(&*state.bundle)
        );
    }
}

const LISTS: [(&[&str], &str); 2] = [
    (&["hooks", "prestart"], r#"{"path":"/hook"}"#),
    (
        &["linux", "resources", "devices"],
        r#"{"allow":true,"type":"c","major":10,"minor":200,"access":"rwm"}"#,
    ),
];

pub(crate) fn config_json(bytes: &[u8]) {
    let parsed = parse(bytes);
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    for (keys, item) in LISTS {
        let before = json_text::list_items(text, keys);
        let Ok(edited) = json_text::append_item(text, keys, item) else {
            continue;
        };
        assert_only_inserted(text, &edited);
        let after = json_text::list_items(&edited, keys);
        let (last, others) = after.split_last().unwrap();
        assert_eq!((*last, others), (item, &*before));
        let value: Value = serde_json::from_str(&edited).unwrap();
        assert!(value.is_object());
        if let Some(old) = &parsed {
            let new = parse(edited.as_bytes()).unwrap();
            assert_eq!(new.env, old.env);
            assert_eq!(new.annotations, old.annotations);
            assert_eq!(
                (&new.rootfs, &new.tmpfs_paths),
                (&old.rootfs, &old.tmpfs_paths)
            );
            let (new, old) = (new.spec_devices, &old.spec_devices);
            assert_eq!(new.nodes, old.nodes);
            assert!(new.rules.starts_with(&old.rules));
            let added = usize::from(keys.contains(&"devices"));
            assert_eq!(new.rules.len(), old.rules.len() + added);
        }
    }
    set_and_remove(text);
}

fn parse(bytes: &[u8]) -> Option<Bundle> {
    Bundle::parse(Path::new("/b"), Path::new("/b/config.json"), bytes).ok()
}

/// Nothing is lost of the old text but one `null`.
fn assert_only_inserted(old: &str, new: &str) {
    let (old, new) = (old.as_bytes(), new.as_bytes());
    let same = |(a, b): &(&u8, &u8)| a == b;
    let before = old.iter().zip(new).take_while(same).count();
    let after = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    if before + after < old.len() {
        assert_eq!(&old[before..old.len() - after], b"null");
    }
}

/// Setting a new member and removing it again gives the same bytes.
fn set_and_remove(text: &str) {
    const KEY: &str = "boathook";
    let Ok(Value::Object(members)) = serde_json::from_str(text) else {
        return;
    };
    let whole = json_text::find_value(text, &[]).unwrap();
    if members.is_empty() || json_text::find_value(text, &[KEY]).is_some() {
        return;
    }
    let set = json_text::set_member(text, whole, KEY, "[1]");
    let value = json_text::find_value(&set, &[KEY]).unwrap();
    assert_eq!(&set[value], "[1]");
    let whole = json_text::find_value(&set, &[]).unwrap();
    assert_eq!(json_text::remove_member(&set, whole, KEY), text);
}
