//! The recordings of terminals in docs/pictures. Each test types the commands of one on a host
//! with real engines and the built programs, and compares their output with the recording, which
//! therefore shows what the programs print today. `make recordings` writes them anew.

mod cast;
mod pod;
mod stick;
mod terminal;

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use harness::binaries;

use super::machine::Machine;

/// The variable with which the tests write the recordings in place of comparing them.
const WRITE: &str = "UPDATE_RECORDINGS";

/// The directory with the programs on a host on which they are installed.
const PROGRAMS: &str = "/opt/boathook/current/bin";

/// The recordings, which README.md or a page shows.
const NAMES: [&str; 3] = ["replugged", "doctor", "pod"];

/// Places the programs where an installation has them.
fn install_programs(machine: &Machine) {
    let programs = machine.private.file(PROGRAMS);
    let built = binaries::program("boathook").unwrap();
    fs::create_dir_all(programs.parent().unwrap()).unwrap();
    symlink(built.parent().unwrap(), programs).unwrap();
}

/// Returns the path of a file of docs/pictures.
fn file(name: &str, ending: &str) -> PathBuf {
    let directory = binaries::source_tree().join("docs/pictures");
    directory.join(format!("{name}.{ending}"))
}

/// `scripts/draw-recordings` draws the SVG. One that was not drawn again has other words.
#[test]
fn each_recording_is_drawn_and_shown() {
    // They are drawn after that.
    if env::var_os(WRITE).is_some() {
        return;
    }
    let tree = binaries::source_tree();
    let pages = fs::read_dir(tree.join("docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let pages = pages.map(|page| fs::read_to_string(page).unwrap());
    let pages = pages.collect::<String>() + &fs::read_to_string(tree.join("README.md")).unwrap();
    for name in NAMES {
        let recorded = cast::read(&file(name, "cast"));
        let drawn = cast::words_of_svg(&fs::read_to_string(file(name, "svg")).unwrap());
        for line in cast::screen_lines(&recorded) {
            let is_drawn = drawn.contains(&line);
            assert!(is_drawn, "{name}: no `{line}`: scripts/draw-recordings");
        }
        assert!(pages.contains(&format!("pictures/{name}.svg")), "{name}");
    }
}
