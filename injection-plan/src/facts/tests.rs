//! Tests of facts programs, with scripts in place of a driver's programs.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use device_class::host::RealHost;

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

fn reported(root: &Path) -> ReportedProperties {
    ReportedProperties::run_programs(&class(), root, |program, arguments| {
        let mut command = Command::new(root.join(program.strip_prefix("/").unwrap()));
        command.args(arguments);
        command
    })
}

fn write(reported: &ReportedProperties, root: &Path) -> Option<String> {
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
    let found = ReportedProperties::run_programs(&class, root.path(), start);
    assert_eq!(
        found.facts.first_value("0"),
        Some("/driver/lib"),
        "{found:?}"
    );
    class.spec.program_directories.clear();
    let absent = ReportedProperties::run_programs(&class, root.path(), start);
    assert_eq!(
        (absent.faults.len(), absent.facts.first_value("0")),
        (0, None)
    );
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
        ReportedProperties::run_programs(&class, root.path(), |program, arguments| {
            let mut command = Command::new(root.path().join(program.strip_prefix("/").unwrap()));
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
    assert_eq!(all.facts.first_value("0/1"), Some("part"));
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
    class.spec.property_programs = programs.into();
    let root = host("case $1 in -L) echo X 2;; *) exit 1;; esac");
    let file = root.path().join(FILE);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "boathook uptime\t0\nown 1\t1\nother 1\t1\n").unwrap();
    let found = ReportedProperties::run_programs(&class, root.path(), |_, arguments| {
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
    let found = ReportedProperties::run_programs(&class, root.path(), |_, arguments| {
        let mut command = Command::new(root.path().join("smi"));
        command.args(arguments);
        command
    });
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    assert!(took < Duration::from_millis(3500), "{took:?}");
    assert_eq!(found.programs, ["/smi a", "/smi b", "/smi c", "/smi d"]);
}

/// The first program stands for one that loads the driver, which makes the nodes. The program for
/// each node is listed again after it.
#[test]
fn a_program_is_run_for_nodes_that_an_earlier_program_made() {
    let node_program = "[[facts]]\nprogram = ['/smi', '{n}']\nfor_each = '/dev/x{n:number}'\n\
                        lines = [{ line = '^X (?<n>.+)$', facts = { 'node' = '{n}' } }]\n";
    let text = format!(
        "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
         discover = [{{ count = 1 }}]\ndevice = {{ id = 'x-{{index}}' }}\n\
         [[facts]]\nprogram = ['/smi', 'load']\n\
         lines = [{{ line = '^X (?<n>load)$', facts = {{ 'driver' = '{{n}}' }} }}]\n\
         {node_program}\
         [[facts]]\nprogram = ['/smi', 'wait']\nfor_each_fact = 'driver'\nlines = []\n\
         {node_program}"
    );
    let name = "x".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, "x.toml".as_ref(), &text).unwrap();
    let root = host("echo X $1; if [ $1 = load ]; then : > \"${0%/*}/dev/x7\"; fi");
    fs::create_dir(root.path().join("dev")).unwrap();
    let found = ReportedProperties::run_programs(&class, root.path(), |_, arguments| {
        let mut command = Command::new(root.path().join("smi"));
        command.args(arguments);
        command
    });
    assert_eq!(found.programs, ["/smi load", "/smi 7"]);
}

/// A program may print nothing, for example if no device has a link to another device.
#[test]
fn silence_is_the_answer_of_a_program_that_succeeds_only() {
    let mut class = class();
    let text = "program = ['/smi', '-L']\ncannot_tell = '^\\s*$'\nlines = []\n";
    class.spec.property_programs = vec![toml::from_str(text).unwrap()];
    for (script, faults) in [
        ("echo", &[][..]),
        ("kill -9 $$", &["/smi -L failed (signal: 9 (SIGKILL))"]),
        ("exit 9", &["/smi -L failed (exit status: 9)"]),
    ] {
        let root = host(script);
        let found = ReportedProperties::run_programs(&class, root.path(), |_, _| {
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
