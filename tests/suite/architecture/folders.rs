//! Which folders of a crate use which, by `use` and by paths in the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use harness::binaries;

use super::{Arrows, crates, read};

#[test]
fn no_folder_uses_one_that_uses_it() {
    let tree = binaries::source_tree();
    let mut circles = Vec::new();
    for name in crates() {
        let arrows = arrows_of(&tree.join(&name).join("src"));
        for (folder, used) in &arrows {
            let back = used.iter().filter(|other| reaches(&arrows, other, folder));
            circles.extend(back.map(|other| format!("{name}: {folder} uses {other}, and back")));
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// The circles of modules within a folder that are left, each with its folder. A reader of one of
/// these modules has to know the others. The list only becomes shorter.
const KNOWN_CIRCLES: [(&str, &str); 9] = [
    (
        "boathook/src/command",
        "devices doctor example holders launcher restarting",
    ),
    (
        "device-class/src/discover",
        "device files links loaded_driver mask net_devices nodes paths sharing",
    ),
    ("hook/src/container", "directory error policy procfs"),
    ("hook/src/log", "follower node"),
    ("hook/src/mount", "bind detached source"),
    ("hook/src/oci", "bundle hooks"),
    (
        "injection-plan/src/cdi",
        "common_mounts devices directory generator spec",
    ),
    ("injection-plan/src/plan", "builder request_warnings"),
    (
        "injection-plan/src/request",
        "awaited_device cdi_name error list names node_paths selection variables",
    ),
];

#[test]
fn no_circle_of_modules_is_added_within_a_folder() {
    let tree = binaries::source_tree();
    let mut found = BTreeSet::new();
    for name in crates() {
        let src = tree.join(&name).join("src");
        let folders = files(&src)
            .into_iter()
            .filter_map(|file| file.parent().map(Path::to_owned));
        for folder in folders
            .filter(|folder| *folder != src)
            .collect::<BTreeSet<_>>()
        {
            let path = folder.strip_prefix(&src).unwrap();
            if path.starts_with("bin") {
                continue;
            }
            let modules = path.to_str().unwrap().replace('/', "::");
            let arrows = arrows_within(&folder, &format!("crate::{modules}::"));
            let place = format!("{name}/src/{}", path.display());
            found.extend(
                find_circles(&arrows)
                    .into_iter()
                    .map(|circle| (place.clone(), circle)),
            );
        }
    }
    let known: BTreeSet<(String, String)> = KNOWN_CIRCLES
        .iter()
        .map(|(place, circle)| ((*place).to_owned(), (*circle).to_owned()))
        .collect();
    let describe = |circles: Vec<&(String, String)>| format!("{circles:#?}");
    let added = describe(found.difference(&known).collect());
    let ended = describe(known.difference(&found).collect());
    assert_eq!(
        found, known,
        "added: {added}, ended, so remove the entry: {ended}"
    );
}

#[test]
fn circles_are_found() {
    let arrows = |lines: &[(&str, &str)]| -> Arrows {
        let mut arrows = Arrows::new();
        for (module, used) in lines {
            arrows
                .entry((*module).to_owned())
                .or_default()
                .insert((*used).to_owned());
        }
        arrows
    };
    for (lines, circles) in [
        (&[("a", "b"), ("b", "c"), ("a", "c")][..], &[][..]),
        (&[("a", "b"), ("b", "a"), ("b", "c")], &["a b"]),
        (
            &[
                ("a", "b"),
                ("b", "c"),
                ("c", "a"),
                ("d", "e"),
                ("e", "d"),
                ("d", "a"),
            ],
            &["a b c", "d e"],
        ),
    ] {
        assert_eq!(find_circles(&arrows(lines)), circles, "{lines:?}");
    }
}

/// Returns the names of the modules of each circle. Two modules are in one circle if each reaches
/// the other.
fn find_circles(arrows: &Arrows) -> Vec<String> {
    let reaches_itself = |module: &&String| {
        let used = arrows[*module].iter();
        used.clone().any(|other| reaches(arrows, other, module))
    };
    let mut circles = BTreeSet::new();
    for module in arrows.keys().filter(reaches_itself) {
        let is_beside =
            |other: &&String| reaches(arrows, module, other) && reaches(arrows, other, module);
        let circle: Vec<&str> = arrows
            .keys()
            .filter(is_beside)
            .map(String::as_str)
            .collect();
        circles.insert(circle.join(" "));
    }
    circles.into_iter().collect()
}

/// The layers of modules for running containers. The modules of a layer use only earlier layers.
const LAYERS: [&[&str]; 5] = [
    &["error"],
    &["container"],
    &["reconcile"],
    &["announce"],
    &["attach", "detach", "follow", "refresh"],
];

#[test]
fn each_layer_for_running_containers_uses_only_earlier_layers() {
    let src = binaries::source_tree().join("boathook/src/live");
    let arrows = arrows_within(&src, "crate::live::");
    let find_layer = |module: &str| {
        let layer = LAYERS.iter().position(|layer| layer.contains(&module));
        layer.unwrap_or_else(|| panic!("{module} is in no layer"))
    };
    let used_at_all: BTreeSet<&String> = arrows.values().flatten().collect();
    assert!(used_at_all.len() >= 3, "{used_at_all:?}");
    for (module, used) in &arrows {
        for other in used {
            assert!(
                find_layer(other) < find_layer(module),
                "{module} uses {other}"
            );
        }
    }
}

fn reaches(arrows: &Arrows, from: &str, to: &str) -> bool {
    let (mut seen, mut unseen) = (BTreeSet::new(), vec![from]);
    while let Some(folder) = unseen.pop() {
        if folder == to {
            return true;
        }
        if seen.insert(folder) {
            unseen.extend(arrows.get(folder).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

/// Which of a crate's outermost modules, each a file or a folder, use which.
fn arrows_of(src: &Path) -> Arrows {
    arrows_within(src, "crate::")
}

/// The same within a folder of modules, whose paths begin with `prefix`.
fn arrows_within(src: &Path, prefix: &str) -> Arrows {
    let [lib, main, module] = ["lib.rs", "main.rs", "mod.rs"].map(|name| src.join(name));
    let roots = [lib, main, module, src.with_extension("rs")];
    let root = roots.iter().find(|path| path.exists()).unwrap();
    let root = code(root);
    let mut arrows = Arrows::new();
    for file in files(src) {
        let path = file.strip_prefix(src).unwrap().with_extension("");
        let mut module: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
        if module.last() == Some(&"mod") {
            module.pop();
        }
        let Some(&folder) = module.first() else {
            continue;
        };
        if ["lib", "main", "bin"].contains(&folder) {
            continue;
        }
        let code = code(&file);
        let to_root = format!("{}::", vec!["super"; module.len()].join("::"));
        let used = [prefix, &to_root].map(|prefix| named_after(&code, prefix));
        let used = used.into_iter().flatten().map(|name| exporter(&root, name));
        let used = used.filter(|other| *other != folder && src_has(src, other));
        arrows
            .entry(folder.to_owned())
            .or_default()
            .extend(used.map(str::to_owned));
    }
    arrows
}

fn src_has(src: &Path, module: &str) -> bool {
    src.join(module).is_dir() || src.join(format!("{module}.rs")).is_file()
}

/// The module from which the root exports a name; a module is its own.
fn exporter<'t>(root: &'t str, name: &'t str) -> &'t str {
    let exports = root.split("use ").skip(1);
    let mut exports = exports.filter_map(|export| export.split(';').next()?.split_once("::"));
    let has = |items: &str| items.split(|c| !is_word(c)).any(|item| item == name);
    exports
        .find(|(_, items)| has(items))
        .map_or(name, |(module, _)| module)
}

/// The first names of the paths that begin with `prefix`; of a group all names.
fn named_after<'t>(code: &'t str, prefix: &str) -> Vec<&'t str> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c| is_word(c) || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let group = rest.strip_prefix('{').and_then(|rest| rest.split_once(';'));
        match group {
            None => names.extend(rest.split(|c| !is_word(c)).next()),
            Some((group, _)) => names.extend(group.split(|c| !is_word(c))),
        }
    }
    names
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A file's text without comments, and without a module of tests at its end.
fn code(file: &Path) -> String {
    let text = read(file);
    let tests = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let mut tests = tests.filter(|at| {
        let item = text[*at..].lines().nth(1);
        item.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    });
    let text = &text[..tests.next().unwrap_or(text.len())];
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// All files of a crate but those of its tests.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.file_stem().unwrap().to_str().unwrap() {
            "tests" | "fixture" => {}
            _ if path.is_dir() => found.extend(files(&path)),
            _ if path.extension() == Some("rs".as_ref()) => found.push(path),
            _ => {}
        }
    }
    found
}
