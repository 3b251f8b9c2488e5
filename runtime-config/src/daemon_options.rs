//! Finds the options with which a host starts an engine's daemon. The options can be in the systemd
//! unit, in the variables of the init script, or on the command line of a running process.

use std::path::{Path, PathBuf};

use crate::host::HostRoot;
use crate::processes::{find_option_values, find_processes};
use crate::unit;

/// A daemon of an engine, and the files that can contain its command line.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The name of the daemon's program, such as `dockerd`.
    pub(crate) program_name: &'static str,
    pub(crate) unit_name: &'static str,
    /// The path of the init script. It starts the daemon on a host without systemd.
    pub(crate) init_script_path: &'static str,
    /// The paths of the files in which distributions set the variables of the init script.
    pub(crate) variable_file_paths: &'static [&'static str],
    /// The names of the daemon's option for the path of its configuration file, such as
    /// `--config-file`.
    pub(crate) config_option_names: &'static [&'static str],
    /// The default path of the configuration file. Boathook does not configure a daemon that has
    /// another configuration file.
    pub(crate) config_path: &'static str,
}

/// An option of a daemon, and the place where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonOption {
    pub(crate) value: String,
    /// The file or process that sets the option, as text for messages.
    pub(crate) source: String,
}

impl Daemon {
    /// Returns the value of `option`, such as `--default-runtime`, on the daemon's command line. A
    /// command line that names another configuration file than the default one is ignored. The unit
    /// or the variable files are searched first, then the processes of root. A file that cannot be
    /// read counts as empty.
    pub(crate) fn find_option(&self, host: &HostRoot, option: &str) -> Option<DaemonOption> {
        self.find_option_with_config(host, option, self.config_path)
    }

    /// Returns the value of `option` like [`Self::find_option`], but for a daemon whose
    /// configuration file is `config_path`.
    pub(crate) fn find_option_with_config(
        &self,
        host: &HostRoot,
        option: &str,
        config_path: &str,
    ) -> Option<DaemonOption> {
        let command_lines = self.read_command_lines(host).into_iter();
        command_lines
            .chain(self.find_process_command_lines(host))
            .find_map(|(source, words)| {
                let mut paths = find_option_values(&words, self.config_option_names);
                let value = find_option_values(&words, &[option]).last()?.to_owned();
                paths
                    .all(|path| path == config_path)
                    .then_some(DaemonOption { value, source })
            })
    }

    /// Returns whether the daemon is started with the option `flag`, which needs no value, such as
    /// `--live-restore`. The unit or the variable files are searched. If there are none, the
    /// processes of root are searched. An explicit value counts if Go reads it as true
    /// (`strconv.ParseBool`).
    pub(crate) fn has_flag(&self, host: &HostRoot, flag: &str) -> bool {
        let is_set = |(_, words): &(String, Vec<String>)| {
            let mut values = words.iter().filter_map(|word| word.strip_prefix(flag));
            matches!(
                values.next_back(),
                Some("" | "=1" | "=t" | "=T" | "=true" | "=True" | "=TRUE")
            )
        };
        let command_lines = self.read_command_lines(host);
        if command_lines.is_empty() {
            return self.find_process_command_lines(host).iter().any(is_set);
        }
        command_lines.iter().any(is_set)
    }

    /// Returns the path of the daemon's configuration file. The unit or the variables of the init
    /// script can set it. If the host has neither, the processes of root are searched. If one of
    /// these reads the default file, the path of the default file is returned.
    pub(crate) fn find_config_path(&self, host: &HostRoot) -> String {
        let parse_config_path = |(_, words): &(String, Vec<String>)| {
            let path = find_option_values(words, self.config_option_names)
                .last()?
                .to_owned();
            path.starts_with('/').then_some(path)
        };
        let path_in_files = self
            .read_command_lines(host)
            .iter()
            .find_map(parse_config_path);
        if path_in_files.is_some() || unit::has_unit(host, self.unit_name) {
            return path_in_files.unwrap_or_else(|| self.config_path.to_owned());
        }
        let paths_of_processes: Option<Vec<String>> = self
            .find_process_command_lines(host)
            .iter()
            .map(parse_config_path)
            .collect();
        paths_of_processes
            .and_then(|paths| paths.into_iter().next())
            .unwrap_or_else(|| self.config_path.to_owned())
    }

    /// Returns the command lines in the unit, or the variables of the init script. Each is split
    /// into words, and comes with the path of its file.
    fn read_command_lines(&self, host: &HostRoot) -> Vec<(String, Vec<String>)> {
        let mut command_lines = unit::find_command_lines(host, self.unit_name);
        if !unit::has_unit(host, self.unit_name) && host.exists(Path::new(self.init_script_path)) {
            for file in self.variable_file_paths {
                let text = host.read(Path::new(file)).ok().flatten();
                let variables = unit::parse_variables(&text.unwrap_or_default()).into_iter();
                command_lines.extend(variables.map(|(_, value)| (PathBuf::from(file), value)));
            }
        }
        command_lines
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

    /// Returns the arguments of each process that runs the daemon as root, with a description of
    /// the process for messages.
    fn find_process_command_lines(&self, host: &HostRoot) -> Vec<(String, Vec<String>)> {
        find_processes(host, |program| program == self.program_name)
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
