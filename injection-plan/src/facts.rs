//! Runs the programs of a class that report facts, and writes the file with these.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use device_class::class::{FactsProgram, Server};
use device_class::facts::{self, Facts};
use device_class::host::RealHost;
use device_class::template::Attributes;
use device_class::{DeviceClass, HostView, discover, ownership};
use rooted_path::replace_file;

use crate::program_output;

/// The length of a program's output that is read, in bytes. That of a host with 16 GPUs
/// takes about half of it.
const MAX_OUTPUT: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct Reported {
    facts: Facts,
    /// The programs that gave them, with their arguments.
    pub programs: Vec<String>,
    /// What is wrong with the others, a line each.
    pub faults: Vec<String>,
}

impl Reported {
    /// Runs the programs of a class, one after another, on the host whose root is at
    /// `root`. `start` makes the command of one. Programs that are not there report
    /// nothing.
    pub fn run_programs(
        class: &DeviceClass,
        root: &Path,
        start: impl Fn(&Path, &[String]) -> Command,
    ) -> Self {
        let mut reported = Reported::default();
        let mut all = Vec::new();
        let host = match RealHost::open(root) {
            Ok(host) => host,
            Err(error) => {
                let root = root.display();
                reported.faults.push(format!("{root}: {error}"));
                return reported;
            }
        };
        // Parts that the host does not have yet can be made.
        let makes_parts = class.settings.serve == Server::Dra;
        for program in &class.spec.facts {
            let only_for_parts = match &program.needs {
                Some(path) => !discover::matches(path, &host),
                None => program.for_parts,
            };
            if only_for_parts && !makes_parts {
                continue;
            }
            for (command, known) in discover::fact_commands(program, &all, &host) {
                match run(program, &command, &known, root, &start) {
                    Ok(None) => {}
                    Ok(Some(facts)) => {
                        all.extend(facts);
                        reported.programs.push(command.join(" "));
                    }
                    Err(_) if only_for_parts => {}
                    Err(fault) => {
                        let command = command.join(" ");
                        reported.faults.push(format!("{command} {fault}"));
                        // It would probably hang as often as it is run.
                        break;
                    }
                }
            }
        }
        reported.facts = Facts::from_pairs(all);
        reported
    }

    /// The version that the programs report of themselves.
    pub fn version(&self) -> Option<&str> {
        self.facts.first("version")
    }

    /// Writes the file of the class, below `root`; removes it if there are no facts.
    /// Returns its path, and whether there is one.
    pub fn write(
        &self,
        class: &DeviceClass,
        root: &Path,
        host: &dyn HostView,
    ) -> io::Result<(PathBuf, bool)> {
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let path = below(&facts::file(&class.name));
        if self.facts.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok((path, false)),
            };
        }
        let mut builder = fs::DirBuilder::new();
        let directory = below(Path::new(facts::DIRECTORY));
        builder.recursive(true).mode(0o755).create(directory)?;
        let text = self.facts.text(host, &self.programs);
        replace_file(&path, 0o644, text.as_bytes())?;
        Ok((path, true))
    }
}

/// The facts that a program reports; `None`: there is no such program, or it cannot tell.
fn run(
    program: &FactsProgram,
    command: &[String],
    known: &Attributes,
    root: &Path,
    start: impl Fn(&Path, &[String]) -> Command,
) -> Result<Option<Vec<(String, String)>>, String> {
    let Some((path, arguments)) = command.split_first() else {
        return Ok(None);
    };
    let path = Path::new(path);
    match ownership::program(root, path) {
        Ok(_) => {}
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(format!("cannot be run: {error}")),
    }
    let timeout = program.timeout.get();
    let ended = program_output::run_program(start(path, arguments), timeout, MAX_OUTPUT);
    let seconds = timeout.as_secs();
    match ended {
        Err(error) => Err(format!("cannot be run: {error}")),
        Ok(None) => Err(format!("took longer than {seconds} seconds and was killed")),
        // One that is killed may have printed nothing, too.
        Ok(Some((status, text)))
            if program.cannot_tell(&text) && (status.success() || !text.trim().is_empty()) =>
        {
            Ok(None)
        }
        Ok(Some((status, _))) if !status.success() => Err(format!("failed ({status})")),
        Ok(Some((_, text))) => match program.facts(&text, known) {
            facts if facts.is_empty() => Err("printed nothing that the class knows".into()),
            facts => Ok(Some(facts)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    use super::*;

    const FILE: &str = "run/boathook/facts/x";

    fn class() -> DeviceClass {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ count = 1 }]\ndevice = { id = 'x-{index}' }\n\
                    [[facts]]\nprogram = ['/smi', '-L']\ntimeout = 1\n\
                    lines = [{ line = '^X (?<n>[0-9]+): (?<name>.+)$', facts = { '{n}' = '{name}' } }]\n";
        DeviceClass::parse("x".to_owned().try_into().unwrap(), "x.toml".as_ref(), text).unwrap()
    }

    /// A host whose program is this script, copied by another process: a descriptor of this
    /// one on it could be inherited by what another test starts, and it could not be run.
    fn host(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let text = root.path().join("text");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        let copied = Command::new("/bin/cp")
            .args([text, root.path().join("smi")])
            .status();
        assert!(copied.unwrap().success());
        root
    }

    fn reported(root: &Path) -> Reported {
        Reported::run_programs(&class(), root, |program, arguments| {
            let mut command = Command::new(root.join(program.strip_prefix("/").unwrap()));
            command.args(arguments);
            command
        })
    }

    fn write(reported: &Reported, root: &Path) -> Option<String> {
        let host = RealHost::open(root).unwrap();
        let (path, exists) = reported.write(&class(), root, &host).unwrap();
        assert_eq!(path, root.join(FILE));
        assert_eq!(path.exists(), exists);
        fs::read_to_string(path).ok()
    }

    #[test]
    fn what_a_program_prints_is_in_the_file_of_its_class() {
        let root = host("echo \"X 0: $1 one\"; echo 'X 1: two'; echo 'X 1: two'; env | grep -c =");
        let one = reported(root.path());
        assert_eq!((one.programs.len(), one.faults.len()), (1, 0), "{one:?}");
        let text = write(&one, root.path()).unwrap();
        let mut lines = text.lines();
        let head = lines.next().unwrap();
        assert!(head.starts_with("boathook uptime\t"), "{head}");
        let rest: Vec<&str> = lines.collect();
        let version = concat!("boathook version\t", env!("CARGO_PKG_VERSION"));
        let program = "boathook program\t/smi -L";
        assert_eq!(rest, [version, program, "0\t-L one", "1\ttwo"]);
        let directory = root.path().join("run/boathook/facts");
        let names = fs::read_dir(directory).unwrap().count();
        assert_eq!(names, 1, "a temporary file is left");
    }

    /// A program for each value that another one has reported, and one whose parts the host
    /// does not have.
    #[test]
    fn programs_are_run_for_what_others_report() {
        let text = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                    discover = [{ count = 1 }]\ndevice = { id = 'x-{index}' }\n\
                    [[facts]]\nprogram = ['/smi', '-l']\n\
                    lines = [{ line = '^chip (?<chip>.+)$', facts = { chips = '{chip}' } }]\n\
                    [[facts]]\nprogram = ['/smi', '-i', '{1}', '-c', '{2}']\nneeds = '/parts*'\n\
                    for_each_fact = 'chips'\ncannot_tell = 'has none'\n\
                    lines = [{ line = '^part (?<n>.+)$', facts = { '{n}' = 'part' } }]\n";
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
        let root = host(
            "case \"$*\" in -l) printf 'chip 0 0\\nchip 0 1\\nchip 1 0\\n';; \
             '-i 1 -c 0') echo it has none; exit 3;; *) echo \"part $2/$4\";; esac",
        );
        let of = || {
            Reported::run_programs(&class, root.path(), |program, arguments| {
                let mut command =
                    Command::new(root.path().join(program.strip_prefix("/").unwrap()));
                command.args(arguments);
                command
            })
        };
        assert_eq!(of().programs, ["/smi -l"]);
        fs::write(root.path().join("parts0"), "").unwrap();
        let all = of();
        let programs = ["/smi -l", "/smi -i 0 -c 0", "/smi -i 0 -c 1"];
        assert_eq!(
            (all.programs.as_slice(), all.faults.len()),
            (&programs.map(String::from)[..], 0)
        );
        assert_eq!(all.facts.first("0/1"), Some("part"));
    }

    #[test]
    fn a_program_that_fails_leaves_the_state_without_facts() {
        let late = format!("{} sleep 30", "sleep 30 &");
        for (script, reason) in [
            ("exit 9", "/smi -L failed (exit status: 9)"),
            (
                "echo nonsense",
                "/smi -L printed nothing that the class knows",
            ),
            (
                late.as_str(),
                "/smi -L took longer than 1 seconds and was killed",
            ),
            ("yes X", "/smi -L took longer than 1 seconds and was killed"),
        ] {
            let root = host("echo 'X 0: before'");
            assert!(write(&reported(root.path()), root.path()).is_some());
            let bad = host(script);
            fs::rename(bad.path().join("smi"), root.path().join("smi")).unwrap();
            let start = Instant::now();
            let found = reported(root.path());
            assert!(start.elapsed() < Duration::from_secs(20), "{script}");
            assert_eq!(found.faults, [reason], "{script}");
            assert_eq!(write(&found, root.path()), None, "{script}");
        }
    }

    /// As where no device has a link to another one.
    #[test]
    fn silence_is_the_answer_of_a_program_that_succeeds_only() {
        let mut class = class();
        let text = "program = ['/smi', '-L']\ncannot_tell = '^\\s*$'\nlines = []\n";
        class.spec.facts = vec![toml::from_str(text).unwrap()];
        for (script, faults) in [
            ("echo", &[][..]),
            ("kill -9 $$", &["/smi -L failed (signal: 9 (SIGKILL))"]),
            ("exit 9", &["/smi -L failed (exit status: 9)"]),
        ] {
            let root = host(script);
            let found = Reported::run_programs(&class, root.path(), |_, _| {
                Command::new(root.path().join("smi"))
            });
            assert_eq!(found.faults, faults, "{script}");
        }
    }

    #[test]
    fn a_flood_and_hostile_names_do_no_harm() {
        let root = host("echo 'X 0: one'; head -c 100000000 /dev/zero | tr '\\0' y; true");
        let found = reported(root.path());
        // As fast as this machine: all of it, or killed.
        let text = write(&found, root.path()).unwrap_or_default();
        assert!(text.len() < 1000 && found.faults.len() < 2, "{text:.200}");
        let root = host("printf 'X 0: \\033[2J\\nX 1: a\\tb\\nX 2: fine\\nX 3: \\303\\050\\n'");
        let text = write(&reported(root.path()), root.path()).unwrap();
        assert!(text.ends_with("/smi -L\n2\tfine\n"), "{text:?}");
    }

    #[test]
    fn a_program_of_others_or_none_is_not_run() {
        let root = host("echo 'X 0: one'");
        let program = root.path().join("smi");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        let found = reported(root.path());
        assert!(found.faults[0].contains("chmod go-w"), "{found:?}");
        fs::remove_file(&program).unwrap();
        let found = reported(root.path());
        assert!(
            found.faults.is_empty() && found.programs.is_empty(),
            "{found:?}"
        );
    }
}
