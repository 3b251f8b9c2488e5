//! Parses CDI specifications in YAML, which programs of other vendors write.
//!
//! Engines parse them with Go's `sigs.k8s.io/yaml`, which uses only the first document. This parser
//! returns every scalar as a string, because its callers need only names and paths, and engines
//! also read an unquoted name such as `0` as a string.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// The maximum nesting depth of collections. A [`Value`] is dropped recursively, so a value with
/// more levels could overflow the stack.
const MAX_NESTING_DEPTH: usize = 64;

/// The maximum number of values in a specification. Aliases can repeat values many times, so even a
/// small file could fill the memory without this limit.
const MAX_VALUE_COUNT: usize = 200_000;

/// A parsed YAML value. `value_count` counts the value itself and all values that are nested in it.
#[derive(Clone)]
struct YamlNode {
    value: Value,
    value_count: usize,
}

/// A list or mapping whose end the parser has not reached yet.
struct Collection {
    /// The id by which aliases refer to the collection (its anchor). The id is 0 if the collection
    /// has no anchor.
    anchor_id: usize,
    node: YamlNode,
    /// In a mapping, the last parsed key, as long as its value is not parsed yet.
    pending_key: Option<String>,
}

impl Collection {
    fn new(anchor_id: usize, value: Value) -> Self {
        Collection {
            anchor_id,
            node: YamlNode {
                value,
                value_count: 1,
            },
            pending_key: None,
        }
    }

    fn add_node(&mut self, node: YamlNode) {
        self.node.value_count += node.value_count;
        match (&mut self.node.value, self.pending_key.take()) {
            (Value::Array(list), _) => list.push(node.value),
            (Value::Object(members), Some(key)) => {
                members.insert(key, node.value);
            }
            // In a mapping without a pending key, the node is a key. A CDI specification has no
            // collections as keys, so a collection is read as the key "".
            (_, _) => self.pending_key = Some(node.value.as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// Parses the first YAML document of `text`. Returns `None` if the text is not valid YAML, or if it
/// exceeds [`MAX_VALUE_COUNT`] or [`MAX_NESTING_DEPTH`].
pub(super) fn parse(text: &str) -> Option<Value> {
    let mut anchors: BTreeMap<usize, YamlNode> = BTreeMap::new();
    let mut open_collections: Vec<Collection> = Vec::new();
    let mut value_count = 0;
    // Editors on Windows may write a byte order mark at the beginning of a file.
    for event in Parser::new_from_str(text.trim_start_matches('\u{feff}')) {
        let (event, _) = event.ok()?;
        if open_collections.len() > MAX_NESTING_DEPTH || value_count > MAX_VALUE_COUNT {
            return None;
        }
        let (anchor_id, node) = match event {
            Event::MappingStart(_, anchor_id, _) => {
                open_collections.push(Collection::new(anchor_id, Value::Object(Map::new())));
                continue;
            }
            Event::SequenceStart(_, anchor_id, _) => {
                open_collections.push(Collection::new(anchor_id, Value::Array(Vec::new())));
                continue;
            }
            Event::Scalar(text, style, anchor_id, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if is_null {
                    Value::Null
                } else {
                    Value::String(text.into_owned())
                };
                (
                    anchor_id,
                    YamlNode {
                        value,
                        value_count: 1,
                    },
                )
            }
            Event::Alias(anchor_id) => (0, anchors.get(&anchor_id)?.clone()),
            Event::MappingEnd | Event::SequenceEnd => {
                let closed_collection = open_collections.pop()?;
                if open_collections.is_empty() {
                    return Some(closed_collection.node.value);
                }
                (closed_collection.anchor_id, closed_collection.node)
            }
            _ => continue,
        };
        value_count += node.value_count;
        if anchor_id != 0 {
            anchors.insert(anchor_id, node.clone());
        }
        // Without an open collection, the whole document is one scalar, so it is not a CDI
        // specification.
        open_collections.last_mut()?.add_node(node);
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_specification_of_another_program_is_read() {
        let text = "\
# written by a vendor's program
---
cdiVersion: 0.5.0
kind: example.com/gpu
containerEdits:
  deviceNodes: &control
  - path: /dev/card-control
devices:
- name: 0
  containerEdits:
    deviceNodes:
    - {path: /dev/card0, major: 195, type: ~}
- name: \"all\"
  containerEdits: {deviceNodes: *control}
...
kind: other
";
        let expected = json!({
            "cdiVersion": "0.5.0",
            "kind": "example.com/gpu",
            "containerEdits": {"deviceNodes": [{"path": "/dev/card-control"}]},
            "devices": [
                {"name": "0", "containerEdits": {"deviceNodes": [
                    {"path": "/dev/card0", "major": "195", "type": null},
                ]}},
                {"name": "all", "containerEdits": {"deviceNodes": [
                    {"path": "/dev/card-control"},
                ]}},
            ],
        });
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("{\"a\": [1]}"), Some(json!({"a": ["1"]})));
        assert_eq!(parse("[a]: b\n"), Some(json!({"": "b"})));
    }

    #[test]
    fn a_hostile_text_is_no_specification() {
        let aliases = (1..100).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1));
        let bomb = format!("a0: &a0 [x]\n{}", aliases.collect::<String>());
        let nested = format!("{}x{}", "[".repeat(1 << 10), "]".repeat(1 << 10));
        for text in ["", "a", "a: *unknown\n", "a: [\n", "\u{0}", &bomb, &nested] {
            assert_eq!(parse(text), None, "{:.40}", text);
        }
        for unit in ["[", "? ", "- "] {
            assert_eq!(parse(&unit.repeat(1 << 20)), None);
        }
    }
}
