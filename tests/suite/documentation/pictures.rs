//! The pictures of docs/pictures: `scripts/draw-pictures` makes each SVG from its text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use harness::binaries;

/// A picture whose text was changed and that was not drawn again differs in its words. The
/// positions depend on the version of Graphviz and are not compared.
#[test]
fn each_picture_has_the_words_of_its_text() {
    let directory = binaries::source_tree().join("docs/pictures");
    let mut compared = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let text = entry.unwrap().path();
        if text.extension().is_some_and(|ending| ending == "dot") {
            let drawn = words_of_svg(&text.with_extension("svg"));
            let source = words_of_text(&text);
            assert_eq!(drawn, source, "{}: scripts/draw-pictures", text.display());
            compared += 1;
        }
    }
    assert!(compared >= 3, "{compared}");
}

/// Returns the lines of all labels. Each node of the pictures has a label.
fn words_of_text(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let labels = text.split("label=\"").skip(1);
    let labels = labels.map(|rest| rest.split('"').next().unwrap());
    let lines = labels.flat_map(|label| label.split("\\n"));
    lines.map(str::to_owned).collect()
}

fn words_of_svg(path: &Path) -> BTreeSet<String> {
    let svg = fs::read_to_string(path).unwrap();
    let texts = svg.split("<text ").skip(1);
    let texts = texts.map(|rest| rest.split_once('>').unwrap().1);
    let lines = texts.map(|rest| rest.split("</text>").next().unwrap());
    let plain = |line: &str| {
        let entities = [
            ("&#45;", "-"),
            ("&#39;", "'"),
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&amp;", "&"),
        ];
        let replace = |line: String, (entity, sign)| line.replace(entity, sign);
        entities.into_iter().fold(line.to_owned(), replace)
    };
    lines.map(plain).collect()
}
