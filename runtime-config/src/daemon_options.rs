//! An option with which a host starts an engine's daemon: on the command lines of its
//! processes, of its systemd unit, or of the settings for its init script.

use std::path::{Path, PathBuf};

use crate::host::HostRoot;
use crate::processes::{option_values, processes};
use crate::unit;

/// A daemon whose command line is searched.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) program: &'static str,
    pub(crate) unit: &'static str,
    /// The script by which a host without systemd starts it.
    pub(crate) init_script: &'static str,
    /// The files with the script's variables, as distributions have them.
    pub(crate) variables: &'static [&'static str],
    /// An option that names the configuration, and the value that means the usual one.
    pub(crate) config: (&'static [&'static str], &'static str),
}

/// An option of a daemon, and where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonOption {
    pub(crate) value: String,
    /// A file, or a process.
    pub(crate) source: String,
}

impl Daemon {
    /// The first place where `option` is set for a daemon with the usual configuration. A
    /// file that cannot be read counts as empty.
    pub(crate) fn find_option(&self, host: &HostRoot, option: &str) -> Option<DaemonOption> {
        let mut lines = unit::command_lines(host, self.unit);
        if !unit::exists(host, self.unit) && host.exists(Path::new(self.init_script)) {
            for file in self.variables {
                let text = host.read(Path::new(file)).ok().flatten();
                let variables = unit::variables(&text.unwrap_or_default()).into_iter();
                lines.extend(variables.map(|(_, value)| (PathBuf::from(file), value)));
            }
        }
        let of_files = lines.into_iter().map(|(path, line)| {
            let words = line.split_whitespace();
            let words = words.map(|word| word.trim_matches(['"', '\'']).to_owned());
            (path.display().to_string(), words.collect::<Vec<_>>())
        });
        let running = processes(host, |program| program == self.program).into_iter();
        let of_processes = running.filter(|process| process.uid == 0).map(|process| {
            let arguments = process.arguments.get(1..).unwrap_or_default().to_vec();
            (
                format!("the command line of process {}", process.pid),
                arguments,
            )
        });
        of_files.chain(of_processes).find_map(|(source, words)| {
            let (names, usual) = self.config;
            let mut configs = option_values(&words, names);
            let value = option_values(&words, &[option]).last()?.to_owned();
            configs
                .all(|config| config == usual)
                .then_some(DaemonOption { value, source })
        })
    }
}
