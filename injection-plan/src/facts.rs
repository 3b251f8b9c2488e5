//! Runs the programs of a class that report properties of the driver (facts), and writes these
//! facts to a file of the class.

mod programs;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use device_class::driver_properties::{self, DriverProperties};
use device_class::{DeviceClass, HostView, discover};
use host_files::rooted_path::replace_file;

/// The facts (driver properties) that the programs of one class reported.
#[derive(Debug, Default)]
pub struct ReportedProperties {
    facts: DriverProperties,
    /// The command lines of the programs that reported facts.
    pub programs: Vec<String>,
    /// One line for each program that failed, with the reason.
    pub faults: Vec<String>,
    /// The positions of successful programs in the class's list of programs. Every run of such a
    /// program succeeded and reported facts.
    successful_positions: Vec<usize>,
}

impl ReportedProperties {
    /// Returns the value of the fact `version`, if a program reported it.
    pub fn version(&self) -> Option<&str> {
        self.facts.first_value("version")
    }

    /// Writes the facts to the file of the class, which is below `root`.
    /// [`discover::keep_earlier_properties`] decides which facts of earlier runs since the host's
    /// boot are kept. If there are no facts, the file is removed. Returns the path of the file, and
    /// whether the file exists afterwards.
    pub fn write(
        &self,
        class: &DeviceClass,
        root: &Path,
        host: &dyn HostView,
    ) -> io::Result<(PathBuf, bool)> {
        let join_root = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let path = join_root(&driver_properties::properties_file_path(&class.name));
        let (earlier_properties, earlier_programs) = DriverProperties::read_since_boot(class, host);
        let (mut facts, mut programs) = (self.facts.clone(), self.programs.clone());
        if !earlier_properties.is_empty() {
            // If the host has none of the programs, an upgrade may be replacing them at the moment.
            // So this counts as a failure of the programs.
            let have_failed = !self.faults.is_empty() || programs.is_empty();
            let programs_with_position = class.spec.property_programs.iter().zip(0..);
            let successful_programs = programs_with_position
                .filter(|(_, position)| self.successful_positions.contains(position));
            let is_replaced = |key: &str| {
                successful_programs
                    .clone()
                    .any(|(program, _)| program.may_report_key(key))
            };
            discover::keep_earlier_properties(
                &mut facts,
                earlier_properties,
                class,
                host,
                have_failed,
                is_replaced,
            );
            let kept_programs = earlier_programs
                .into_iter()
                .filter(|program| have_failed && !self.programs.contains(program));
            programs.extend(kept_programs);
        }
        if facts.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok((path, false)),
            };
        }
        let mut builder = fs::DirBuilder::new();
        let directory = join_root(Path::new(driver_properties::PROPERTIES_DIR));
        builder.recursive(true).mode(0o755).create(directory)?;
        let text = facts.to_file_text(host, &programs);
        replace_file(&path, 0o644, text.as_bytes())?;
        Ok((path, true))
    }
}
