//! Reads from systemd's unit files how a service is started (systemd.unit(5), systemd.service(5),
//! systemd.exec(5)).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::host::HostRoot;

/// The directories of unit files (systemd.unit(5)). The first directory has the highest precedence.
const UNIT_DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Returns whether the host has the unit. The result is `false` if the unit is masked, as a link to
/// /dev/null.
pub(crate) fn has_unit(host: &HostRoot, unit: &str) -> bool {
    find_main_unit_file(host, unit).is_some()
}

/// Returns the command lines of a service unit (`ExecStart=`). All drop-ins are applied, and
/// variables are replaced by their values. Each command line comes with the path of the file that
/// sets it. A file that cannot be read counts as empty.
pub(crate) fn find_command_lines(host: &HostRoot, unit: &str) -> Vec<(PathBuf, String)> {
    let Some(main_unit_path) = find_main_unit_file(host, unit) else {
        return Vec::new();
    };
    let read_text = |path: &Path| host.read(path).ok().flatten().unwrap_or_default();
    let mut commands = Vec::new();
    let mut environment = BTreeMap::new();
    let mut environment_files = Vec::new();
    for path in std::iter::once(main_unit_path).chain(find_drop_ins(host, unit)) {
        for (key, value) in parse_service_settings(&read_text(&path)) {
            match (key.as_str(), value.as_str()) {
                ("ExecStart", "") => commands.clear(),
                ("ExecStart", _) => commands.push((path.clone(), value)),
                ("Environment", "") => environment.clear(),
                ("Environment", _) => environment.extend(parse_assignments(&value, &path)),
                ("EnvironmentFile", "") => environment_files.clear(),
                ("EnvironmentFile", _) => environment_files.push(value),
                _ => {}
            }
        }
    }
    // `EnvironmentFile=` has precedence over `Environment=`.
    for file in environment_files {
        let path = PathBuf::from(file.trim_start_matches('-'));
        let variables = parse_variables(&read_text(&path)).into_iter();
        environment.extend(variables.map(|(name, value)| (name, (path.clone(), value))));
    }
    let mut command_lines = Vec::new();
    for (path, command) in commands {
        let mut line = String::new();
        let mut source = path;
        for command_part in split_variables(&command) {
            match command_part {
                CommandPart::Text(text) => line.push_str(text),
                CommandPart::Variable(name) => {
                    if let Some((file, value)) = environment.get(name) {
                        line.push_str(value);
                        source.clone_from(file);
                    }
                }
            }
        }
        command_lines.push((source, line));
    }
    command_lines
}

/// Returns the names and values of the variables in a text of `NAME=VALUE` lines. Such a text is in
/// an `EnvironmentFile=` of systemd, or in a file that a shell reads.
pub(crate) fn parse_variables(text: &str) -> Vec<(String, String)> {
    let lines = join_lines(text).into_iter();
    lines
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim().trim_start_matches("export ").to_owned();
            Some((name, value.trim().trim_matches(['"', '\'']).to_owned()))
        })
        .collect()
}

/// Returns the path of the main file of a unit, in the directory with the highest precedence.
/// Returns `None` if the host does not have the unit, or if the unit is masked.
fn find_main_unit_file(host: &HostRoot, unit: &str) -> Option<PathBuf> {
    let mut paths = UNIT_DIRS.iter().map(|dir| Path::new(dir).join(unit));
    let path = paths.find(|path| host.find_entry(path).is_some())?;
    host.is_file(&path).then_some(path)
}

/// Returns the drop-in files of a unit, in the order in which systemd reads them. If several
/// drop-in files have the same name, systemd reads only the one in the directory with the highest
/// precedence.
fn find_drop_ins(host: &HostRoot, unit: &str) -> Vec<PathBuf> {
    let mut paths_by_name: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for dir in UNIT_DIRS.iter().rev() {
        for dir_name in ["service.d".to_owned(), format!("{unit}.d")] {
            let drop_in_dir = Path::new(dir).join(dir_name);
            for name in host.list(&drop_in_dir).unwrap_or_default() {
                if name.as_encoded_bytes().ends_with(b".conf") {
                    let path = drop_in_dir.join(&name);
                    paths_by_name.insert(name, path);
                }
            }
        }
    }
    // A drop-in file that is a link to /dev/null disables the drop-in files with the same name.
    let files = paths_by_name
        .into_values()
        .filter(|path| host.is_file(path));
    files.collect()
}

/// Returns the keys and values in the section `[Service]` of a unit file, such as `ExecStart`.
fn parse_service_settings(text: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for line in join_lines(text) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[Service]"
            && let Some((key, value)) = line.split_once('=')
        {
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

/// Returns the lines of a text without comments and blank lines. If a line ends in a backslash, the
/// next line that is not a comment is joined to it.
fn join_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_continuation = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (line, is_continued) = match line.strip_suffix('\\') {
            Some(start) => (start, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| is_continuation) {
            Some(last) => *last = format!("{last} {line}"),
            None => lines.push(line.to_owned()),
        }
        is_continuation = is_continued;
    }
    lines.retain(|line| !line.trim().is_empty());
    lines
}

/// Parses the value of a setting `Environment=`: one or more assignments, each of which may be in
/// quotes. Returns the name of each variable, with its value and the file `path`.
fn parse_assignments(value: &str, path: &Path) -> Vec<(String, (PathBuf, String))> {
    let mut assignments = Vec::new();
    let mut unparsed_text = value.trim_start();
    while !unparsed_text.is_empty() {
        let quote = unparsed_text
            .chars()
            .next()
            .filter(|c| matches!(c, '"' | '\''));
        let (assignment, remaining_text) = match quote {
            Some(quote) => unparsed_text[1..]
                .split_once(quote)
                .unwrap_or((&unparsed_text[1..], "")),
            None => unparsed_text
                .split_once(char::is_whitespace)
                .unwrap_or((unparsed_text, "")),
        };
        if let Some((name, value)) = assignment.split_once('=') {
            let value = value.trim_matches(['"', '\'']).to_owned();
            assignments.push((name.to_owned(), (path.to_owned(), value)));
        }
        unparsed_text = remaining_text.trim_start();
    }
    assignments
}

#[derive(Debug, PartialEq, Eq)]
enum CommandPart<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// Splits a command into literal text and variables (`$NAME` and `${NAME}`).
fn split_variables(command: &str) -> Vec<CommandPart<'_>> {
    let mut command_parts = Vec::new();
    let mut unparsed_text = command;
    while let Some((text, remaining_text)) = unparsed_text.split_once('$') {
        command_parts.push(CommandPart::Text(text));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let braced_name = remaining_text
            .strip_prefix('{')
            .and_then(|remaining_text| remaining_text.split_once('}'));
        let (name, remaining_text) = braced_name.unwrap_or_else(|| {
            let end = remaining_text
                .find(|c| !is_name(c))
                .unwrap_or(remaining_text.len());
            remaining_text.split_at(end)
        });
        command_parts.push(CommandPart::Variable(name));
        unparsed_text = remaining_text;
    }
    command_parts.push(CommandPart::Text(unparsed_text));
    command_parts
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = HostRoot::open(dir.path()).unwrap();
        (dir, host)
    }

    const UNIT: &str = "lib/systemd/system/docker.service";
    const PACKAGED: &str = "[Unit]\nExecStart=no\n[Service]\nEnvironmentFile=-/etc/default/docker\n\
        ExecStart=/usr/sbin/dockerd -H fd:// \\\n# why\n  $DOCKER_OPTS --x=${X}y\n";

    #[test]
    fn the_commands_of_a_unit_are_those_after_all_drop_ins() {
        let cases: [(&[(&str, &str)], &str); 8] = [
            (&[], ""),
            (&[(UNIT, PACKAGED)], "/usr/sbin/dockerd -H fd:// --x=y"),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "etc/default/docker",
                        "# DOCKER_OPTS=\"-a\"\nDOCKER_OPTS=\"-b c\"\n",
                    ),
                ],
                "/usr/sbin/dockerd -H fd:// -b c --x=y",
            ),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "etc/systemd/system/docker.service",
                        "[Service]\nExecStart=a\n",
                    ),
                ],
                "a",
            ),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "etc/systemd/system/docker.service.d/a.conf",
                        "[Service]\nExecStart=\nExecStart=b\n",
                    ),
                ],
                "b",
            ),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "lib/systemd/system/docker.service.d/a.conf",
                        "[Service]\nExecStart=\nExecStart=b\n",
                    ),
                    ("etc/systemd/system/docker.service.d/a.conf", ""),
                    (
                        "run/systemd/system/docker.service.d/b.conf",
                        "[Service]\nEnvironment=\"X=1 2\" DOCKER_OPTS='-d'\n",
                    ),
                ],
                "/usr/sbin/dockerd -H fd:// -d --x=1 2y",
            ),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "etc/systemd/system/docker.service.d/a",
                        "[Service]\nExecStart=\n",
                    ),
                ],
                "/usr/sbin/dockerd -H fd:// --x=y",
            ),
            (
                &[
                    (UNIT, PACKAGED),
                    (
                        "etc/systemd/system/service.d/a.conf",
                        "[Service]\nExecStart=\n",
                    ),
                ],
                "",
            ),
        ];
        for (files, expected) in cases {
            let (_dir, host) = host(files);
            let lines: Vec<String> = find_command_lines(&host, "docker.service")
                .into_iter()
                .map(|(_, line)| line)
                .collect();
            let words: Vec<&str> = lines
                .iter()
                .flat_map(|line| line.split_whitespace())
                .collect();
            assert_eq!(words.join(" "), expected, "{files:?}");
        }
    }

    #[test]
    fn a_masked_unit_does_not_exist() {
        let (dir, host) = host(&[(UNIT, PACKAGED)]);
        let etc = dir.path().join("etc/systemd/system");
        fs::create_dir_all(&etc).unwrap();
        std::os::unix::fs::symlink("/dev/null", etc.join("docker.service")).unwrap();
        assert!(!has_unit(&host, "docker.service"));
        assert!(find_command_lines(&host, "docker.service").is_empty());
    }
}
