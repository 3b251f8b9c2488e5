//! The recipes of the Makefile, which `make -n` prints. A clone may be in a directory with a blank
//! in its name.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;

/// Splits a recipe into words, as a shell does with quotes.
fn split_words(recipe: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in recipe.chars() {
        match quote {
            Some(open) if character == open => quote = None,
            None if "'\"".contains(character) => quote = Some(character),
            None if character.is_whitespace() => words.push(String::new()),
            _ => words.last_mut().unwrap().push(character),
        }
    }
    words
}

#[test]
fn a_path_with_a_blank_is_one_word_of_every_recipe() {
    let directory = scratch::directory("makefile").unwrap();
    let clone = directory.path().join("a blank");
    fs::create_dir(&clone).unwrap();
    let makefile = binaries::source_tree().join("Makefile");
    fs::copy(&makefile, clone.join("Makefile")).unwrap();
    let text = fs::read_to_string(&makefile).unwrap();
    let targets = text.lines().filter_map(|line| {
        let (name, _) = line.split_once(": ## ")?;
        Some(name)
    });
    let (start, whole) = (directory.path().join("a"), clone.display().to_string());
    let start = start.display().to_string();
    for output in ["", "output", &format!("{whole}/output")] {
        let mut paths = 0;
        for target in targets.clone() {
            let mut make = Command::new("make");
            make.args(["-n", "--no-print-directory", "-C"])
                .arg(&clone)
                .arg(target);
            make.args(
                ["DIR", "KUBERNETES", "CLASS", "HOST", "AGAINST", "DESTDIR"]
                    .map(|variable| format!("{variable}={whole}/{variable}")),
            );
            make.env_remove("CARGO_TARGET_DIR");
            if !output.is_empty() {
                make.env("CARGO_TARGET_DIR", output);
            }
            // What a user or `make test` gave to this process is no option of this call.
            make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
            let recipes = Captured::run(&mut make).unwrap().success().unwrap().stdout;
            for word in split_words(&recipes) {
                if let Some((_, rest)) = word.split_once(&start) {
                    assert!(
                        rest.starts_with(" blank/"),
                        "{output} {target}: {word}\n{recipes}"
                    );
                    paths += 1;
                }
            }
        }
        assert!(paths > 20, "{output}: {paths}");
    }
}
