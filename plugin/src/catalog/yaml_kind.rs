//! Finds the `kind` of a CDI specification in YAML that another program may have written.
//!
//! Engines read such a file with Go's `sigs.k8s.io/yaml`: only the first document counts, keys are
//! compared case-insensitively, and `<<` merges one mapping into another.

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// A node of a YAML document, reduced to the values that the search for the kind needs.
#[derive(Clone, Default)]
struct YamlNode<'a> {
    scalar: Option<Cow<'a, str>>,
    /// The value of the key `kind` in a mapping. For a list this is the value in its first mapping
    /// that has the key, because `<<` also accepts a list of mappings.
    kind: Option<Cow<'a, str>>,
}

/// A list or mapping whose end the parser has not reached yet.
struct Collection<'a> {
    /// The number by which an alias refers to this collection, or 0 if it has no anchor.
    anchor_id: usize,
    is_mapping: bool,
    /// The last key that was read. Its value is the next node.
    pending_key: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    /// The kind from a mapping that the key `<<` merges into this one. If this mapping has its own
    /// key `kind`, that value is used instead.
    merged_kind: Option<Cow<'a, str>>,
}

impl<'a> Collection<'a> {
    fn new(anchor_id: usize, is_mapping: bool) -> Self {
        Collection {
            anchor_id,
            is_mapping,
            pending_key: None,
            kind: None,
            merged_kind: None,
        }
    }

    fn add_node(&mut self, node: YamlNode<'a>) {
        if !self.is_mapping {
            self.merged_kind = self.merged_kind.take().or(node.kind);
            return;
        }
        match self.pending_key.take() {
            None => self.pending_key = Some(node.scalar.unwrap_or_default()),
            Some(key) if key.eq_ignore_ascii_case("kind") => self.kind = node.scalar,
            Some(key) if key == "<<" => self.merged_kind = self.merged_kind.take().or(node.kind),
            Some(_) => {}
        }
    }
}

/// Returns the value of the key `kind`, or `None` if the key is missing or the text is not YAML.
pub(super) fn read_yaml_kind(text: &str) -> Option<String> {
    let mut anchors: BTreeMap<usize, YamlNode<'_>> = BTreeMap::new();
    let mut open_collections: Vec<Collection<'_>> = Vec::new();
    // A byte order mark, which editors on Windows may write, is skipped.
    for event in Parser::new_from_str(text.trim_start_matches('\u{feff}')) {
        let (event, _) = event.ok()?;
        let (anchor, node) = match event {
            Event::MappingStart(_, anchor, _) => {
                open_collections.push(Collection::new(anchor, true));
                continue;
            }
            Event::SequenceStart(_, anchor, _) => {
                open_collections.push(Collection::new(anchor, false));
                continue;
            }
            Event::Scalar(scalar, _, anchor, _) => {
                let scalar = Some(scalar);
                (anchor, YamlNode { scalar, kind: None })
            }
            Event::Alias(anchor) => (0, anchors.get(&anchor).cloned().unwrap_or_default()),
            Event::MappingEnd | Event::SequenceEnd => {
                let collection = open_collections.pop()?;
                let kind = collection.kind.or(collection.merged_kind);
                if open_collections.is_empty() {
                    return kind.filter(|_| collection.is_mapping).map(Cow::into_owned);
                }
                (collection.anchor_id, YamlNode { scalar: None, kind })
            }
            _ => continue,
        };
        if anchor != 0 {
            anchors.insert(anchor, node.clone());
        }
        // A document that is neither a list nor a mapping has no kind.
        open_collections.last_mut()?.add_node(node);
    }
    None
}

#[cfg(test)]
mod tests {
    use injection_plan::cdi::directory::{SpecFileKind, scan_yaml_kind};

    use super::*;

    #[test]
    fn each_form_of_a_kind_is_read() {
        for text in [
            r#"{"cdiVersion": "0.5.0", "kind": "a.com/b"}"#,
            "cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n",
            "kind: \"a.com/b\"\n",
            "kind: 'a.com/b'\n",
            "\"kind\": a.com/b\n",
            "'kind': a.com/b\n",
            "kind : a.com/b\n",
            "kind: a.com/b # the vendor's\n",
            "kind: # the vendor's\n  a.com/b\n",
            "kind:\n  a.com/b\n",
            "{cdiVersion: 0.5.0, kind: a.com/b}\n",
            "{cdiVersion: 0.5.0,\n kind:\n  a.com/b,\n devices: []}\n",
            "---\n  cdiVersion: 0.5.0\n  kind: a.com/b\n",
            "%YAML 1.2\n--- # one\nkind: a.com/b\n...\n",
            "kind: >-\n  a.com/b\ndevices: []\n",
            "kind: |-\n  a.com/b\n",
            "kind: &k a.com/b\n",
            "annotations: {x: &k a.com/b}\nkind: *k\n",
            "x: &k kind\n*k : a.com/b\n",
            "? kind\n: a.com/b\n",
            "kind: !!str a.com/b\n",
            "!!map\nkind: a.com/b\n",
            "\"k\\x69nd\": \"a.com\\u002fb\"\n",
            "kind: \"a.com/\\\n  b\"\n",
            "annotations: &a {kind: a.com/b}\n<<: *a\n",
            "<<: [{x: y}, {kind: a.com/b}]\nkind: a.com/b\n",
            "<<: {kind: c.com/d}\nkind: a.com/b\n",
            "KIND: a.com/b\r\ndevices: []\r\n",
            "\u{feff}kind: a.com/b\n",
            "kind: a.com/b\n---\nkind: c.com/d\n",
        ] {
            assert_eq!(read_yaml_kind(text).as_deref(), Some("a.com/b"), "{text}");
            // `boathook`, which has no parser, overlooks none of them.
            assert!(
                scan_yaml_kind(text.to_owned()).may_match("a.com/b"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_plain_kind_is_known_without_a_parser() {
        let text = "cdiVersion: 0.5.0\nkind: c.com/d\ndevices:\n- name: \"a.com/b\\x20\"\n";
        let found = scan_yaml_kind(text.to_owned());
        assert_eq!(found, SpecFileKind::Known("c.com/d".to_owned()));
        assert!(!found.may_match("a.com/b"));
        let quoted = "kind: 'c.com/d'\nannotations: {pattern: 'a\\.com'}\n";
        assert!(!scan_yaml_kind(quoted.to_owned()).may_match("a.com/b"));
    }

    #[test]
    fn what_is_no_kind_is_none() {
        for text in [
            "",
            "{}",
            "[]",
            "devices:\n- kind: a.com/b\n",
            "- kind: a.com/b\n",
            "# kind: a.com/b\n",
            "annotations: |\n  kind: a.com/b\n",
            "kinds: a.com/b\n",
            "kind: [a.com/b]\n",
            "kind: *unknown\n",
            "---\n---\nkind: a.com/b\n",
            "\u{0}",
        ] {
            assert_eq!(read_yaml_kind(text), None, "{text}");
        }
    }

    /// Neither nesting nor aliases that double with each line cost more than the text.
    #[test]
    fn a_hostile_file_costs_no_more_than_its_size() {
        let start = std::time::Instant::now();
        let aliases = (1..100).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}]\n", n - 1));
        let bomb = format!("a0: &a0 [x]\n{}", aliases.collect::<String>());
        for text in [
            format!("{bomb}kind: a.com/b\n"),
            "[".repeat(1 << 20),
            "? ".repeat(1 << 20),
            "- ".repeat(1 << 20),
            "kind: &a [*a]\n".repeat(10_000),
            format!("{{\"{}\"", "x".repeat(4 << 20)),
        ] {
            let _ = read_yaml_kind(&text);
        }
        assert!(start.elapsed().as_secs() < 20);
    }
}
