//! Editors of engines' configuration files.

use runtime_config::Engine;

/// The input is an engine's name, a newline, and its main configuration file.
pub(crate) fn edit(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let (name, file) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(engine) = name.parse::<Engine>() {
        runtime_config::fuzzing::install_and_undo(engine, file);
    }
}
