//! Classes and what hosts have of them, through the library's own interface.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod administrator;
mod bad_input;
mod board_devices;
mod class_index;
mod class_of_ones_own;
mod combined;
mod device_tree;
mod driver_root;
mod extends;
mod facts;
mod facts_of_tools;
mod faults;
mod followed;
mod foreign_text;
mod health;
mod health_commands;
mod labels;
mod large_hosts;
mod layouts;
mod memory_by_model;
mod net_interfaces;
mod node_groups;
mod parts;
mod plugged_devices;
mod schema;
mod schema_validation;
mod shipped;
mod ungiven;
mod vendors;
mod wrong_files;

use std::path::Path;

use device_class::DeviceClass;

/// A class of this name, from a file that is named after it.
fn parse(name: &str, text: &str) -> Result<DeviceClass, String> {
    let file = format!("{name}.toml");
    let name = name.to_owned().try_into().unwrap();
    DeviceClass::parse(name, Path::new(&file), text).map_err(|error| error.to_string())
}

/// The rows of a table. Cells stand between ` | `, an indented line continues its row, and
/// `\n` begins a new line in a cell.
fn rows<const N: usize>(table: &str) -> Vec<[String; N]> {
    let table = table.trim().replace("\n    ", " ");
    let rows = table.lines().filter(|row| !row.starts_with("# "));
    let cells = rows.map(|row| {
        let cells = row
            .split(" | ")
            .map(|cell| cell.trim().replace("\\n", "\n"));
        let cells: Vec<String> = cells.collect();
        cells.try_into().unwrap_or_else(|_| panic!("{row}"))
    });
    cells.collect()
}
