//! Searches an option with which a host starts an engine's daemon. The option may be in the
//! command line of a running process, in the systemd unit, or in the variables of the init
//! script.

use std::path::{Path, PathBuf};

use crate::host::HostRoot;
use crate::processes::{find_processes, option_values};
use crate::unit;

/// A daemon whose command line is searched.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) program: &'static str,
    pub(crate) unit: &'static str,
    /// The script with which a host without systemd starts the daemon.
    pub(crate) init_script: &'static str,
    /// The files in which distributions set the variables of the init script.
    pub(crate) variable_files: &'static [&'static str],
    /// The names of the option that names the configuration file, and the usual file. A daemon
    /// with another configuration file is not the one that Boathook configures.
    pub(crate) config: (&'static [&'static str], &'static str),
}

/// An option of a daemon, and where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonOption {
    pub(crate) value: String,
    /// The file or the process in which the option was found, for messages.
    pub(crate) source: String,
}

impl Daemon {
    /// Returns the value of `option` from the first source that sets it for a daemon with the
    /// usual configuration file: first unit or variable files, then processes of root. A file
    /// that cannot be read counts as empty.
    pub(crate) fn find_option(&self, host: &HostRoot, option: &str) -> Option<DaemonOption> {
        let mut lines = unit::command_lines(host, self.unit);
        if !unit::exists(host, self.unit) && host.exists(Path::new(self.init_script)) {
            for file in self.variable_files {
                let text = host.read(Path::new(file)).ok().flatten();
                let variables = unit::parse_variables(&text.unwrap_or_default()).into_iter();
                lines.extend(variables.map(|(_, value)| (PathBuf::from(file), value)));
            }
        }
        let file_options = lines.into_iter().map(|(path, line)| {
            let words = line
                .split_whitespace()
                .map(|word| word.trim_matches(['"', '\'']).to_owned())
                .collect::<Vec<_>>();
            (path.display().to_string(), words)
        });
        let processes = find_processes(host, |program| program == self.program).into_iter();
        let process_options = processes.filter(|process| process.uid == 0).map(|process| {
            let arguments = process.arguments.get(1..).unwrap_or_default().to_vec();
            (
                format!("the command line of process {}", process.pid),
                arguments,
            )
        });
        file_options
            .chain(process_options)
            .find_map(|(source, words)| {
                let (names, usual) = self.config;
                let mut configs = option_values(&words, names);
                let value = option_values(&words, &[option]).last()?.to_owned();
                configs
                    .all(|config| config == usual)
                    .then_some(DaemonOption { value, source })
            })
    }
}
