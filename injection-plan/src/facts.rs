//! Runs the programs of a class that report driver facts, and writes the facts to the
//! class's file.

mod programs;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use device_class::facts::{self, Facts};
use device_class::{DeviceClass, HostView, discover};
use rooted_path::replace_file;

/// The result of running the facts programs of one class.
#[derive(Debug, Default)]
pub struct ReportedFacts {
    facts: Facts,
    /// The programs that reported facts, each with its arguments.
    pub programs: Vec<String>,
    /// The programs that failed, each with the reason, in one line.
    pub faults: Vec<String>,
    /// The places of the programs in the class whose runs all succeeded and reported facts.
    succeeded: Vec<usize>,
}

impl ReportedFacts {
    /// Returns the fact `version`, if a program reported it.
    pub fn version(&self) -> Option<&str> {
        self.facts.first("version")
    }

    /// Writes the facts to the class's file below `root`, with those of earlier runs of this
    /// boot that [`discover::keep_earlier_facts`] keeps. If there are no facts, the file is
    /// removed. Returns the path of the file, and whether the file exists afterwards.
    pub fn write(
        &self,
        class: &DeviceClass,
        root: &Path,
        host: &dyn HostView,
    ) -> io::Result<(PathBuf, bool)> {
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let path = below(&facts::file(&class.name));
        let (earlier, earlier_programs) = Facts::read_facts_of_this_boot(class, host);
        let (mut facts, mut programs) = (self.facts.clone(), self.programs.clone());
        if !earlier.is_empty() {
            // A host without the programs tells as little as one whose programs fail: they
            // may be replaced at the moment.
            let failed = !self.faults.is_empty() || programs.is_empty();
            let succeeded = class.spec.facts.iter().zip(0..);
            let succeeded = succeeded.filter(|(_, at)| self.succeeded.contains(at));
            let is_replaced = |key: &str| {
                succeeded
                    .clone()
                    .any(|(program, _)| program.may_report(key))
            };
            discover::keep_earlier_facts(&mut facts, earlier, class, host, failed, is_replaced);
            let not_again = earlier_programs.into_iter();
            let not_again = not_again.filter(|program| failed && !self.programs.contains(program));
            programs.extend(not_again);
        }
        if facts.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok((path, false)),
            };
        }
        let mut builder = fs::DirBuilder::new();
        let directory = below(Path::new(facts::DIRECTORY));
        builder.recursive(true).mode(0o755).create(directory)?;
        let text = facts.text(host, &programs);
        replace_file(&path, 0o644, text.as_bytes())?;
        Ok((path, true))
    }
}
