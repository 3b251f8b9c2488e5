//! Reads a CDI specification in YAML, as other vendors' programs write it.
//!
//! Engines read it with Go's `sigs.k8s.io/yaml`, for which the first document counts. The result here
//! has every scalar as text, because only names and paths are looked at, and engines read a name such
//! as `0` without quotes as text too.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// The greatest number of collections within each other. A [`Value`] is dropped recursively.
const MAX_DEPTH: usize = 64;

/// The greatest number of values in a specification, which aliases can multiply.
const MAX_VALUES: usize = 200_000;

/// A value, and the number of values in it.
#[derive(Clone)]
struct Node {
    value: Value,
    count: usize,
}

/// A list or mapping whose end was not read yet.
struct Collection {
    /// The number by which an alias refers to the collection. It is 0 if the collection has no
    /// anchor.
    anchor: usize,
    node: Node,
    /// The key whose value follows, in a mapping.
    key: Option<String>,
}

impl Collection {
    fn new(anchor: usize, value: Value) -> Self {
        Collection {
            anchor,
            node: Node { value, count: 1 },
            key: None,
        }
    }

    fn add(&mut self, node: Node) {
        self.node.count += node.count;
        match (&mut self.node.value, self.key.take()) {
            (Value::Array(list), _) => list.push(node.value),
            (Value::Object(members), Some(key)) => {
                members.insert(key, node.value);
            }
            // A key that is a collection has no meaning in a specification.
            (_, _) => self.key = Some(node.value.as_str().unwrap_or_default().to_owned()),
        }
    }
}

/// Returns the first document of `text`. Returns `None` if the text is no YAML, or has more values
/// or deeper collections than a specification.
pub(super) fn parse(text: &str) -> Option<Value> {
    let mut anchors: BTreeMap<usize, Node> = BTreeMap::new();
    let mut open: Vec<Collection> = Vec::new();
    let mut count = 0;
    // Editors on Windows may write a byte order mark at the beginning of a file.
    for event in Parser::new_from_str(text.trim_start_matches('\u{feff}')) {
        let (event, _) = event.ok()?;
        if open.len() > MAX_DEPTH || count > MAX_VALUES {
            return None;
        }
        let (anchor, node) = match event {
            Event::MappingStart(_, anchor, _) => {
                open.push(Collection::new(anchor, Value::Object(Map::new())));
                continue;
            }
            Event::SequenceStart(_, anchor, _) => {
                open.push(Collection::new(anchor, Value::Array(Vec::new())));
                continue;
            }
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if is_null {
                    Value::Null
                } else {
                    Value::String(text.into_owned())
                };
                (anchor, Node { value, count: 1 })
            }
            Event::Alias(anchor) => (0, anchors.get(&anchor)?.clone()),
            Event::MappingEnd | Event::SequenceEnd => {
                let ended = open.pop()?;
                if open.is_empty() {
                    return Some(ended.node.value);
                }
                (ended.anchor, ended.node)
            }
            _ => continue,
        };
        count += node.count;
        if anchor != 0 {
            anchors.insert(anchor, node.clone());
        }
        // A document that is no collection is no specification.
        open.last_mut()?.add(node);
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
