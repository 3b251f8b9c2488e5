//! Runs the programs of a class that report driver facts, and writes the facts to the
//! class's file.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use device_class::class::{FactsProgram, Server};
use device_class::discover::HostProgram;
use device_class::facts::{self, Facts};
use device_class::host::RealHost;
use device_class::template::Attributes;
use device_class::{DeviceClass, HostView, discover, ownership};
use rooted_path::replace_file;

use crate::program_output;

/// The longest output of a program that is read, in bytes. On a host with 16 GPUs a
/// program prints about half of this.
const MAX_OUTPUT: usize = 1 << 20;

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
    /// Runs the programs of a class on the host whose root directory is `root`, at the same
    /// time where none needs the facts of another. `start` returns the command for a program and its arguments. A program that
    /// does not exist on the host is skipped without a fault.
    pub fn run_programs(
        class: &DeviceClass,
        root: &Path,
        start: impl Fn(&Path, &[String]) -> Command + Sync,
    ) -> Self {
        let mut reported = ReportedFacts::default();
        let mut all = Vec::new();
        let host = match RealHost::open(root) {
            Ok(host) => host,
            Err(error) => {
                let root = root.display();
                reported.faults.push(format!("{root}: {error}"));
                return reported;
            }
        };
        // The DRA server can create parts that the host does not have yet, so programs
        // that are only needed for parts run there although no part exists.
        let makes_parts = class.settings.serve == Server::Dra;
        let is_only_for_parts = |program: &FactsProgram| match &program.needs {
            Some(path) => !discover::matches(path, &host),
            None => program.for_parts,
        };
        let programs = class.spec.facts.iter();
        let programs = programs.map(|program| (program, is_only_for_parts(program)));
        let programs = programs.filter(|(_, only_for_parts)| makes_parts || !only_for_parts);
        let programs: Vec<(&FactsProgram, bool)> = programs.collect();
        // A program starts the driver of each device, which takes long. Programs whose
        // arguments do not depend on the facts of other programs run at the same time.
        for batch in programs.chunk_by(|_, (next, _)| next.for_each_fact.is_none()) {
            let commands = |program| {
                let commands = discover::fact_commands(program, &all, &host);
                let path = commands.first().and_then(|(command, _)| command.first());
                let find = |path| discover::find_host_program(class, Path::new(path), &host);
                (path.map(find), commands)
            };
            let commands = batch.iter().map(|(program, _)| commands(program));
            let batch_commands: Vec<ProgramCommands> = commands.collect();
            let run_each = |program: &FactsProgram, (place, commands): ProgramCommands| {
                let mut runs = Vec::new();
                for (command, known) in commands {
                    let ran = run(program, &command, place.as_ref(), &known, root, &start);
                    // A program that failed or hung once would probably do so again with
                    // the other arguments, so they are not tried.
                    let has_failed = ran.fault.is_some();
                    runs.push((command.join(" "), ran));
                    if has_failed {
                        break;
                    }
                }
                runs
            };
            let run_each = &run_each;
            let results: Vec<Vec<(String, Ran)>> = thread::scope(|scope| {
                let each = batch.iter().zip(batch_commands);
                let running = each.map(|((program, _), commands)| {
                    let program: &FactsProgram = program;
                    scope.spawn(move || run_each(program, commands))
                });
                let running: Vec<_> = running.collect();
                let ended = running.into_iter().map(|thread| thread.join());
                ended.map(Result::unwrap_or_default).collect()
            });
            for ((program, only_for_parts), runs) in batch.iter().zip(results) {
                let mut each = runs.iter();
                if !runs.is_empty() && each.all(|(_, ran)| ran.has_succeeded()) {
                    let mut all = class.spec.facts.iter();
                    let place = all.position(|other| std::ptr::eq(other, *program));
                    reported.succeeded.extend(place);
                }
                for (command, ran) in runs {
                    if let Some(fault) = ran.fault.filter(|_| !only_for_parts) {
                        reported.faults.push(format!("{command} {fault}"));
                    }
                    if !ran.facts.is_empty() {
                        all.extend(ran.facts);
                        reported.programs.push(command);
                    }
                }
            }
        }
        reported.facts = Facts::from_pairs(all);
        reported
    }

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

/// The result of one run of a program. Both fields are empty if the program does not exist,
/// or if its output matches the class's `cannot_tell`.
#[derive(Debug, Default)]
struct Ran {
    /// The keys and values that the program printed, also if it failed then: a program
    /// reports the devices that answer before it fails because one does not.
    facts: Vec<(String, String)>,
    fault: Option<String>,
}

impl Ran {
    fn has_succeeded(&self) -> bool {
        self.fault.is_none() && !self.facts.is_empty()
    }

    fn failed(fault: String) -> Self {
        Ran {
            fault: Some(fault),
            ..Ran::default()
        }
    }
}

/// The place of a program on this host, and its commands, each with the attributes in it.
type ProgramCommands = (Option<HostProgram>, Vec<(Vec<String>, Attributes)>);

/// Runs one program and returns the facts that it reports.
fn run(
    program: &FactsProgram,
    command: &[String],
    place: Option<&HostProgram>,
    known: &Attributes,
    root: &Path,
    start: impl Fn(&Path, &[String]) -> Command,
) -> Ran {
    let (Some((_, arguments)), Some(place)) = (command.split_first(), place) else {
        return Ran::default();
    };
    let path = &*place.path;
    match ownership::program(root, path) {
        Ok(_) => {}
        Err(error) if error.is_absent() => return Ran::default(),
        Err(error) => return Ran::failed(format!("cannot be run: {error}")),
    }
    let timeout = program.timeout.get();
    let mut command = start(path, arguments);
    program_output::set_library_path(&mut command, &place.library_path);
    let ended = program_output::run_program(command, timeout, MAX_OUTPUT);
    let seconds = timeout.as_secs();
    let (status, text) = match ended {
        Err(error) => return Ran::failed(format!("cannot be run: {error}")),
        Ok(None) => {
            let fault = format!("took longer than {seconds} seconds and was killed");
            return Ran::failed(fault);
        }
        Ok(Some(ended)) => ended,
    };
    let facts = program.facts(&text, known);
    // `cannot_tell` may match empty output, which a program that was killed has as well.
    // Empty output therefore counts only if the program succeeded.
    let fault = if program.cannot_tell(&text) && (status.success() || !text.trim().is_empty()) {
        return Ran::default();
    } else if !status.success() {
        Some(format!("failed ({status})"))
    } else if facts.is_empty() {
        Some("printed nothing that the class knows".into())
    } else {
        None
    };
    Ran { facts, fault }
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

    /// Returns a host whose program is this script. Another process copies the script: if
    /// this process had it open for writing, a program that another test starts could
    /// inherit the descriptor, and the script could not be run (`ETXTBSY`).
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

    fn reported(root: &Path) -> ReportedFacts {
        ReportedFacts::run_programs(&class(), root, |program, arguments| {
            let mut command = Command::new(root.join(program.strip_prefix("/").unwrap()));
            command.args(arguments);
            command
        })
    }

    fn write(reported: &ReportedFacts, root: &Path) -> Option<String> {
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

    /// As on a host whose driver is in a directory of its own, which its loader does not know.
    #[test]
    fn a_program_is_found_where_those_for_containers_are() {
        let root = host("echo \"X 0: $LD_LIBRARY_PATH\"");
        for directory in ["driver/bin", "driver/lib"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::rename(root.path().join("smi"), root.path().join("driver/bin/smi")).unwrap();
        let mut class = class();
        let directories = |paths: [&str; 2]| {
            let paths = paths.map(|path| path.to_owned().try_into().unwrap());
            paths.to_vec()
        };
        class.spec.program_directories = directories(["/other/bin", "/driver/bin"]);
        class.spec.library_directories = directories(["/other/lib", "/driver/lib"]);
        let start = |program: &Path, arguments: &[String]| {
            assert_eq!(program, Path::new("/driver/bin/smi"));
            let mut command = Command::new(root.path().join("driver/bin/smi"));
            command.args(arguments);
            command
        };
        let found = ReportedFacts::run_programs(&class, root.path(), start);
        assert_eq!(found.facts.first("0"), Some("/driver/lib"), "{found:?}");
        class.spec.program_directories.clear();
        let absent = ReportedFacts::run_programs(&class, root.path(), start);
        assert_eq!((absent.faults.len(), absent.facts.first("0")), (0, None));
    }

    /// The second program runs once for each chip that the first one reported, and only if
    /// the host has the parts that it `needs`.
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
            ReportedFacts::run_programs(&class, root.path(), |program, arguments| {
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
    fn a_program_that_fails_leaves_the_facts_of_earlier_runs_of_this_boot() {
        let late = format!("{} sleep 30", "sleep 30 &");
        for (script, reason, rest) in [
            ("exit 9", "/smi -L failed (exit status: 9)", "0\tbefore\n"),
            (
                "echo 'X 1: good'; exit 15",
                "/smi -L failed (exit status: 15)",
                "0\tbefore\n1\tgood\n",
            ),
            (
                "echo nonsense",
                "/smi -L printed nothing that the class knows",
                "0\tbefore\n",
            ),
            (
                late.as_str(),
                "/smi -L took longer than 1 seconds and was killed",
                "0\tbefore\n",
            ),
            (
                "yes X",
                "/smi -L took longer than 1 seconds and was killed",
                "0\tbefore\n",
            ),
        ] {
            let root = host("echo 'X 0: before'");
            assert!(write(&reported(root.path()), root.path()).is_some());
            let bad = host(script);
            fs::rename(bad.path().join("smi"), root.path().join("smi")).unwrap();
            let start = Instant::now();
            let found = reported(root.path());
            assert!(start.elapsed() < Duration::from_secs(20), "{script}");
            assert_eq!(found.faults, [reason], "{script}");
            let text = write(&found, root.path()).unwrap();
            let wanted = format!("boathook program\t/smi -L\n{rest}");
            assert!(text.ends_with(&wanted), "{script}: {text}");
            // Those of an earlier boot are not kept.
            let file = root.path().join(FILE);
            fs::write(&file, "boathook uptime\t99999999999\n0\tbefore\n").unwrap();
            let text = write(&found, root.path()).unwrap_or_default();
            assert!(!text.contains("before"), "{script}: {text}");
            // A run that succeeds replaces them.
            let good = host("echo 'X 2: new'");
            fs::rename(good.path().join("smi"), root.path().join("smi")).unwrap();
            let text = write(&reported(root.path()), root.path()).unwrap();
            assert!(text.ends_with("/smi -L\n2\tnew\n"), "{script}: {text}");
        }
    }

    /// A program that succeeds replaces its own facts, also while another one fails.
    #[test]
    fn a_program_that_succeeds_replaces_its_facts_while_another_one_fails() {
        let mut class = class();
        let other = "program = ['/smi', '-i']\n\
                     lines = [{ line = '^Y (?<n>.+)$', facts = { 'other {n}' = '{n}' } }]\n";
        let own = "program = ['/smi', '-L']\n\
                   lines = [{ line = '^X (?<n>.+)$', facts = { 'own {n}' = '{n}' } }]\n";
        let programs = [own, other].map(|text| toml::from_str(text).unwrap());
        class.spec.facts = programs.into();
        let root = host("case $1 in -L) echo X 2;; *) exit 1;; esac");
        let file = root.path().join(FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "boathook uptime\t0\nown 1\t1\nother 1\t1\n").unwrap();
        let found = ReportedFacts::run_programs(&class, root.path(), |_, arguments| {
            let mut command = Command::new(root.path().join("smi"));
            command.args(arguments);
            command
        });
        let host = RealHost::open(root.path()).unwrap();
        found.write(&class, root.path(), &host).unwrap();
        let text = fs::read_to_string(file).unwrap();
        assert!(text.ends_with("other 1\t1\nown 2\t2\n"), "{text}");
    }

    /// Each of four programs sleeps for a second; the last one also waits for the facts of the
    /// first one.
    #[test]
    fn programs_that_do_not_need_each_other_run_at_the_same_time() {
        let one = |name: &str| {
            format!(
                "[[facts]]\nprogram = ['/smi', '{name}']\n\
                 lines = [{{ line = '^X (?<n>.+)$', facts = {{ '{name}' = '{{n}}' }} }}]\n"
            )
        };
        let text = format!(
            "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
             discover = [{{ count = 1 }}]\ndevice = {{ id = 'x-{{index}}' }}\n\
             {}{}{}{}for_each_fact = 'a'\n",
            one("a"),
            one("b"),
            one("c"),
            one("d")
        );
        let name = "x".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, "x.toml".as_ref(), &text).unwrap();
        let root = host("sleep 1; echo \"X $1\"");
        let start = Instant::now();
        let found = ReportedFacts::run_programs(&class, root.path(), |_, arguments| {
            let mut command = Command::new(root.path().join("smi"));
            command.args(arguments);
            command
        });
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(2), "{took:?}");
        assert!(took < Duration::from_millis(3500), "{took:?}");
        assert_eq!(found.programs, ["/smi a", "/smi b", "/smi c", "/smi d"]);
    }

    /// A program may print nothing, for example if no device has a link to another device.
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
            let found = ReportedFacts::run_programs(&class, root.path(), |_, _| {
                Command::new(root.path().join("smi"))
            });
            assert_eq!(found.faults, faults, "{script}");
        }
    }

    #[test]
    fn a_flood_and_hostile_names_do_no_harm() {
        let root = host("echo 'X 0: one'; head -c 100000000 /dev/zero | tr '\\0' y; true");
        let found = reported(root.path());
        // A fast machine reads all output before the timeout; on a slow one the program is
        // killed.
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
