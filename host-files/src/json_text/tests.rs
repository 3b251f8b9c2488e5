use proptest::prelude::*;

use super::*;

const KEYS: [&str; 2] = ["hooks", "prestart"];

#[test]
fn an_item_is_appended_to_its_list() {
    for (before, after) in [
        ("{}", r#"{"hooks":{"prestart":[7]}}"#),
        (" { \n} \n", " {\"hooks\":{\"prestart\":[7]} \n} \n"),
        (r#"{"a":1}"#, r#"{"a":1,"hooks":{"prestart":[7]}}"#),
        (
            "{\n  \"a\": 1\n}\n",
            "{\n  \"a\": 1,\"hooks\":{\"prestart\":[7]}\n}\n",
        ),
        (
            r#"{"hooks": {}, "b": 2}"#,
            r#"{"hooks": {"prestart":[7]}, "b": 2}"#,
        ),
        (
            r#"{"hooks": null , "b": 2}"#,
            r#"{"hooks": {"prestart":[7]} , "b": 2}"#,
        ),
        (
            r#"{"hooks": {"prestart" : null}}"#,
            r#"{"hooks": {"prestart" : [7]}}"#,
        ),
        (
            r#"{"hooks": {"prestart": [ ] , "poststop": []}}"#,
            r#"{"hooks": {"prestart": [7 ] , "poststop": []}}"#,
        ),
        (
            r#"{"hooks": {"prestart": [ {"path": "/x"} ]}}"#,
            r#"{"hooks": {"prestart": [ {"path": "/x"},7 ]}}"#,
        ),
        // Three keys look alike: a member of another object, a key in another case, and a
        // key that is written with an escape.
        (
            r#"{"x": {"hooks": {"prestart": []}}}"#,
            r#"{"x": {"hooks": {"prestart": []}},"hooks":{"prestart":[7]}}"#,
        ),
        (
            r#"{"Hooks": {"prestart": []}}"#,
            r#"{"Hooks": {"prestart": []},"hooks":{"prestart":[7]}}"#,
        ),
        (
            r#"{"ho\u006fks": {"prestart": [1]}}"#,
            r#"{"ho\u006fks": {"prestart": [1,7]}}"#,
        ),
        (
            r#"{"\"hooks\": {": "}]", "hooks": {"prestart": ["]}", "\\"]}}"#,
            r#"{"\"hooks\": {": "}]", "hooks": {"prestart": ["]}", "\\",7]}}"#,
        ),
    ] {
        assert_eq!(append_item(before, &KEYS, "7").unwrap(), after, "{before}");
    }
}

/// The texts have numbers, key orders and escapes that a decoder and encoder would change.
#[test]
fn appending_an_item_changes_no_other_byte() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let texts = [
        r#""n": [1e400, -0, -0.0, 1.10, 1E+2, 18446744073709551616, 0.1000000000000000055511151231257827]"#,
        r#""z": 1, "a": 2, "m": 3, "": 0"#,
        r#""twice": 1, "twice": 2"#,
        "\"tabs\"\t:\r\n\t[ 1 ,\t2 ]  ",
        r#""escapes": "\u0000\ud83d\ude00\/\b\u00e9""#,
        r#""plain": "é😀 \u007f""#,
        &format!(r#""deep": {deep}"#),
        r#""unknown": {"future": [{"x": null}]}"#,
    ];
    for text in texts {
        let before =
            format!("{{{text}, \"hooks\": {{{text}, \"prestart\": [{{{text}}}]}}, {text}}}");
        let after = append_item(&before, &KEYS, "7").unwrap();
        assert_eq!(after.replace("},7]", "}]"), before);
        assert_eq!(list_items(&after, &KEYS).len(), 2);
        assert_eq!(list_items(&after, &KEYS)[1], "7");
    }
}

#[test]
fn an_item_is_not_appended_to_other_types_duplicate_keys_or_invalid_json() {
    for (text, reason) in [
        ("", "`the whole text` is not an object: EOF"),
        ("[]", "`the whole text` is not an object: invalid type"),
        (
            "{\"a\": 1,}",
            "`the whole text` is not an object: trailing comma",
        ),
        (
            "{} x",
            "`the whole text` is not an object: trailing characters",
        ),
        (
            "\u{feff}{}",
            "`the whole text` is not an object: expected value",
        ),
        (
            r#"{"a": NaN}"#,
            "`the whole text` is not an object: expected value",
        ),
        (r#"{"hooks": []}"#, "`hooks` is not an object: invalid type"),
        (
            r#"{"hooks": {"prestart": {}}}"#,
            "`hooks.prestart` is not a list",
        ),
        (
            r#"{"hooks": {"prestart": "[]"}}"#,
            "`hooks.prestart` is not a list",
        ),
        (r#"{"hooks": {}, "hooks": {}}"#, "duplicate key `hooks`"),
        (
            r#"{"hooks": {}, "hoo\u006bs": {}}"#,
            "duplicate key `hooks`",
        ),
        (
            r#"{"hooks": {"prestart": [], "prestart": []}}"#,
            "duplicate key `hooks.prestart`",
        ),
    ] {
        let error = append_item(text, &KEYS, "7").unwrap_err();
        let cause = std::error::Error::source(&error);
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        let error = format!("{error}{cause}");
        assert!(error.starts_with(reason), "{text}: {error}");
        assert!(list_items(text, &KEYS).is_empty(), "{text}");
    }
}

#[test]
fn removing_a_new_member_restores_the_text() {
    let cases = [
        ("{\"a\": 1}", "{\"x\": {},\"a\": 1}"),
        (
            "{\n\t\"a\": [1, {\"x\": 2}]\n}\n",
            "{\n\t\"x\": {},\n\t\"a\": [1, {\"x\": 2}]\n}\n",
        ),
        (
            " { \"}\\\"{\" : \"x\" } ",
            " { \"x\": {}, \"}\\\"{\" : \"x\" } ",
        ),
    ];
    for (before, after) in cases {
        let whole = find_value(before, &[]).unwrap();
        let edited = set_member(before, whole, "x", "{}");
        assert_eq!(edited, after);
        assert_eq!(
            remove_member(&edited, find_value(&edited, &[]).unwrap(), "x"),
            before
        );
    }
}

#[test]
fn the_first_member_of_an_empty_object_gets_its_own_line() {
    let text = "{\n  \"runtimes\": {}\n}";
    let edited = set_member(text, find_value(text, &["runtimes"]).unwrap(), "x", "1");
    assert_eq!(edited, "{\n  \"runtimes\": {\n      \"x\": 1\n  }\n}");
    let taken = remove_member(&edited, find_value(&edited, &["runtimes"]).unwrap(), "x");
    assert_eq!(taken, text);
}

#[test]
fn the_value_of_the_last_of_two_equal_keys_is_found_and_set() {
    let text = "{\"a\": {\"b\": 1}, \"a\": {\"b\": 2}}";
    assert_eq!(&text[find_value(text, &["a", "b"]).unwrap()], "2");
    assert_eq!(
        set_member(text, find_value(text, &["a"]).unwrap(), "b", "3"),
        text.replace('2', "3")
    );
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "[ -~]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into);
        let object = prop::collection::btree_map("[ -~]{0,4}", inner, 0..4);
        prop_oneof![list, object.prop_map(|o| o.into_iter().collect())]
    })
}

proptest! {
    #[test]
    fn removing_a_new_member_restores_every_object(
        object in prop::collection::btree_map("[ -~]{0,4}", value(), 1..5),
        pretty: bool,
    ) {
        let object: serde_json::Value = object.into_iter().collect();
        let text = if pretty { format!("{object:#}\n") } else { object.to_string() };
        let edited = set_member(&text, find_value(&text, &[]).unwrap(), "boathook", "{}");
        let parsed: serde_json::Value = serde_json::from_str(&edited).unwrap();
        prop_assert_eq!(&parsed["boathook"], &serde_json::json!({}));
        prop_assert_eq!(parsed.as_object().unwrap().len(), object.as_object().unwrap().len() + 1);
        let taken = remove_member(&edited, find_value(&edited, &[]).unwrap(), "boathook");
        prop_assert_eq!(taken, text);
    }

    #[test]
    fn appending_an_item_changes_nothing_else_in_any_object(
        object in prop::collection::btree_map("[ -~]{0,4}", value(), 0..5),
        list in prop::collection::vec(value(), 0..4),
        pretty: bool,
    ) {
        let mut object: serde_json::Value = object.into_iter().collect();
        object["hooks"] = serde_json::json!({ "prestart": list });
        let text = if pretty { format!("{object:#}\n") } else { object.to_string() };
        let edited = append_item(&text, &KEYS, "\"added\"").unwrap();
        let added = edited.find("\"added\"").unwrap();
        let start = if list.is_empty() { added } else { added - 1 };
        let rest = format!("{}{}", &edited[..start], &edited[added + 7..]);
        prop_assert_eq!(rest, text);
        prop_assert_eq!(list_items(&edited, &KEYS).len(), list.len() + 1);
    }
}
