//! Finds the options with which a host starts an engine's daemon. They may be in the systemd unit, in
//! the variables of the init script, or in the command line of a running process.

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
        self.find_option_beside(host, option, self.config.1)
    }

    /// Returns the value of `option` as [`Self::find_option`] does, but for a daemon whose
    /// configuration file is `config`.
    pub(crate) fn find_option_beside(
        &self,
        host: &HostRoot,
        option: &str,
        config: &str,
    ) -> Option<DaemonOption> {
        let lines = self.lines_of_files(host).into_iter();
        lines
            .chain(self.lines_of_processes(host))
            .find_map(|(source, words)| {
                let mut configs = option_values(&words, self.config.0);
                let value = option_values(&words, &[option]).last()?.to_owned();
                configs
                    .all(|other| other == config)
                    .then_some(DaemonOption { value, source })
            })
    }

    /// Returns the configuration file of the daemon: that of the unit, or of the init script's
    /// variables. On a host without them it is that of the processes of root, unless one of them
    /// reads the usual file.
    pub(crate) fn find_config_file(&self, host: &HostRoot) -> String {
        let find_config_option = |(_, words): &(String, Vec<String>)| {
            let file = option_values(words, self.config.0).last()?.to_owned();
            file.starts_with('/').then_some(file)
        };
        let usual_file = || self.config.1.to_owned();
        let file_in_unit = self
            .lines_of_files(host)
            .iter()
            .find_map(find_config_option);
        if file_in_unit.is_some() || unit::exists(host, self.unit) {
            return file_in_unit.unwrap_or_else(usual_file);
        }
        let files_of_processes: Option<Vec<String>> = self
            .lines_of_processes(host)
            .iter()
            .map(find_config_option)
            .collect();
        files_of_processes
            .and_then(|files| files.into_iter().next())
            .unwrap_or_else(usual_file)
    }

    /// Returns the words of the command lines in the unit, or in the variables of the init script,
    /// each with its file.
    fn lines_of_files(&self, host: &HostRoot) -> Vec<(String, Vec<String>)> {
        let mut lines = unit::command_lines(host, self.unit);
        if !unit::exists(host, self.unit) && host.exists(Path::new(self.init_script)) {
            for file in self.variable_files {
                let text = host.read(Path::new(file)).ok().flatten();
                let variables = unit::parse_variables(&text.unwrap_or_default()).into_iter();
                lines.extend(variables.map(|(_, value)| (PathBuf::from(file), value)));
            }
        }
        lines
            .into_iter()
            .map(|(path, line)| {
                let words = line
                    .split_whitespace()
                    .map(|word| word.trim_matches(['"', '\'']).to_owned())
                    .collect();
                (path.display().to_string(), words)
            })
            .collect()
    }

    /// Returns the arguments of the daemon's processes that root runs, each with a description of the
    /// process for messages.
    fn lines_of_processes(&self, host: &HostRoot) -> Vec<(String, Vec<String>)> {
        find_processes(host, |program| program == self.program)
            .into_iter()
            .filter(|process| process.uid == 0)
            .map(|process| {
                let arguments = process.arguments.get(1..).unwrap_or_default().to_vec();
                let source = format!("the command line of process {}", process.pid);
                (source, arguments)
            })
            .collect()
    }
}
