//! Behaviour that all commands have in common: JSON, errors, widths, colours.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use nix::pty::{Winsize, openpty};
use serde_json::{Value, json};

use super::{boathook, bundle, code, succeeds};
use crate::said::assert_says;

const THING: &str = "version = 1\nresource = 'example.com/thing'\n\
    request = { env = 'THINGS' }\ndiscover = [{ path = '/sys/thing{index:number}' }]\n\
    device = { id = 'thing-{index}', health = [{ file = '/sys/thing{index}/state', \
    equals = 'up', advice = 'reset it with a command whose description is rather long' }] }\n";

#[test]
fn every_command_prints_json_also_for_an_error() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", THING).unwrap();
    host.add_file("/sys/thing0/state", "up\n").unwrap();
    let bundle = bundle(&[("THINGS", "all")]);
    let bundle = bundle.path().to_str().unwrap();
    let directory = host.path().to_str().unwrap();
    let page = std::fs::read_to_string(binaries::source_tree().join("docs/json.md")).unwrap();
    let mut commands = Vec::new();
    for (line, key) in [
        ("list --all", "/devices/0/id"),
        ("list /dev/thing0", "/devices"),
        ("check thing", "/findings/0/verdict"),
        ("explain --bundle BUNDLE", "/grants/0/class"),
        ("doctor --bundle BUNDLE", "/fault"),
        ("class check HOST/classes/thing.toml", "/devices/0/healthy"),
        ("class new /dev/x0", "/class_file"),
        ("class schema", "/title"),
        ("class schema --of-config", "/properties/trust"),
        ("class record HOST/recorded", "/classes"),
        (
            "class test HOST/classes/thing.toml --device none",
            "/findings",
        ),
        ("log", "/lines"),
        ("facts", "/classes"),
        ("cdi list", "/devices"),
        ("attach none thing=0", "/error/kind"),
        ("detach none", "/error/kind"),
        ("refresh none", "/error/kind"),
        ("cdi generate --all --output HOST/cdi", "/changes/0/wrote"),
        // Errors.
        ("lst", "/error/kind"),
        ("doctor", "/error/kind"),
        ("list other-class", "/error/message"),
        ("explain --bundle /nowhere", "/error/exit_code"),
        ("class check /nowhere.toml", "/error/kind"),
    ] {
        let arguments = line.replace("HOST", directory).replace("BUNDLE", bundle);
        let arguments: Vec<&str> = ["--json"].into_iter().chain(arguments.split(' ')).collect();
        let ran = boathook(&host, &arguments, b"");
        let json: Value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}: {}", ran.stdout));
        assert!(json.is_object(), "{line}: {json}");
        assert!(json.pointer(key).is_some(), "{line}: {json}");
        // The page has each key of the object, with one line for each command.
        let words: Vec<&str> = line
            .split(' ')
            .take_while(|word| is_command(word))
            .collect();
        let keys = json.as_object().unwrap().keys();
        let is_schema = words == ["class", "schema"];
        let mut named = keys.filter(|key| *key != "error" && !is_schema);
        let command = words.join(" ");
        let rows: Vec<&str> = rows_of(&page, &command).collect();
        let is_in_page = |key: &String| rows.iter().any(|row| row.contains(&format!("`{key}`")));
        assert!(
            named.all(is_in_page),
            "{line}: docs/json.md lacks a key of {json}"
        );
        commands.push(command);
        let message = json["error"]["message"].as_str().unwrap_or("none");
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
        if let Some(code) = json.pointer("/error/exit_code") {
            assert_eq!(json!(ran.status.code()), *code, "{line}");
        }
    }
    // `follow` runs until it is stopped, and prints nothing as JSON.
    for command in subcommands(&host, &[]) {
        let below: Vec<String> = match command.as_str() {
            "cdi" | "class" => subcommands(&host, &[&command]),
            "follow" | "help" => continue,
            _ => vec![String::new()],
        };
        for sub in below.iter().filter(|sub| *sub != "help") {
            let name = format!("{command} {sub}");
            let name = name.trim_end();
            assert!(
                commands.iter().any(|tried| tried == name),
                "{name} is not tried"
            );
            assert!(
                rows_of(&page, name).count() > 0,
                "docs/json.md lacks {name}"
            );
        }
    }
}

fn is_command(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase()) && word != "thing" && word != "none"
}

/// The rows of docs/json.md about a command.
fn rows_of<'a>(page: &'a str, command: &str) -> impl Iterator<Item = &'a str> {
    let names = [format!("`boathook {command}`"), format!("`{command}`")];
    let longer = format!("`boathook {command} ");
    page.lines().filter(move |line| {
        let first = line.split(" | ").next().unwrap_or_default();
        let is_row = line.starts_with("| ");
        is_row && (names.iter().any(|name| first.contains(name)) || first.contains(&longer))
    })
}

/// The commands that the help of a command lists.
fn subcommands(host: &HostDirectory, command: &[&str]) -> Vec<String> {
    let help = succeeds(host, &[command, &["--help"]].concat()).stdout;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let words = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn in_terminal(host: &HostDirectory, env: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = Command::new(binaries::program("boathook").unwrap());
    command
        .arg("--config")
        .arg(host.config_file())
        .args(arguments)
        .env_remove("NO_COLOR")
        .envs(env.iter().copied());
    Captured::run(&mut command).unwrap().stdout
}

#[test]
fn tables_fit_the_width_and_colours_can_be_switched_off() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", THING).unwrap();
    host.add_file("/sys/thing0/state", "down\n").unwrap();
    for arguments in [["list"].as_slice(), &["check"], &["list", "thing"]] {
        let wrapped = in_terminal(&host, &[("COLUMNS", "80")], arguments);
        for line in wrapped.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
        let words: Vec<_> = wrapped.split_whitespace().collect();
        let text = words.join(" ");
        assert!(text.contains("reset it with a command"), "{wrapped}");
    }
    let forced = ("CLICOLOR_FORCE", "1");
    assert!(in_terminal(&host, &[forced], &["check"]).contains("\x1b[32mok\x1b[0m"));
    let off = [forced, ("NO_COLOR", "1")];
    assert!(!in_terminal(&host, &off, &["check"]).contains('\x1b'));
    assert!(!in_terminal(&host, &[], &["check"]).contains('\x1b'));
}

/// The lines that `boathook check` writes to a terminal of this width.
fn check_on_terminal(host: &HostDirectory, columns: u16, env: &[(&str, &str)]) -> Vec<String> {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).unwrap();
    let mut command = Command::new(binaries::program("boathook").unwrap());
    command
        .arg("--config")
        .arg(host.config_file())
        .arg("check")
        .env_remove("COLUMNS")
        .envs(env.iter().copied())
        .stdout(terminal.slave)
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // The command has a copy of the terminal, and reading ends when the last one is closed.
    drop(command);
    let mut bytes = Vec::new();
    // The kernel reports the end of a terminal as an error.
    let _ = File::from(terminal.master).read_to_end(&mut bytes);
    child.wait().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn tables_have_the_width_of_the_terminal() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", THING).unwrap();
    host.add_file("/sys/thing0/state", "down\n").unwrap();
    // Colours count for nothing, so that they are off.
    let longest = |columns, env: &[(&str, &str)]| {
        let lines = check_on_terminal(&host, columns, &[&[("NO_COLOR", "1")], env].concat());
        lines
            .iter()
            .map(|line| line.trim_end().len())
            .max()
            .unwrap()
    };
    let (narrow, wide) = (longest(70, &[]), longest(120, &[]));
    assert!(
        narrow <= 70 && (81..=120).contains(&wide),
        "{narrow} {wide}"
    );
    assert!(longest(120, &[("COLUMNS", "60")]) <= 60);
    assert!(
        (71..=80).contains(&longest(0, &[])),
        "an unknown width is 80"
    );
}

/// An error of the operating system is in a message once.
#[test]
fn a_cause_is_printed_once() {
    let host = HostDirectory::new().unwrap();
    for arguments in [
        ["explain", "--bundle", "/nowhere"].as_slice(),
        &["class", "check", "/nowhere.toml"],
        &["class", "record", "/dev/null/x"],
        &["class", "check", "--host", "/nowhere.txt", "/nowhere.toml"],
    ] {
        let ran = boathook(&host, arguments, b"");
        let times = ran.stderr.matches("(os error").count();
        assert_eq!(times, 1, "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_class_is_tried_on_a_recorded_host_and_as_the_plugin_sees_it() {
    let host = HostDirectory::new().unwrap();
    let outside = THING.replace("/sys/thing", "/run/thing");
    host.add_class("thing", &outside).unwrap();
    host.add_file("/run/thing7/state", "up\n").unwrap();
    host.add_file("/run/other", "x\n").unwrap();
    let directory = host.path().join("recorded");
    let record = [
        "class",
        "record",
        "--class",
        "thing",
        directory.to_str().unwrap(),
    ];
    succeeds(&host, &record);
    let file = directory.join("host.txt");
    let recorded = std::fs::read_to_string(&file).unwrap();
    assert!(recorded.contains("file /run/thing7/state"), "{recorded}");
    assert!(!recorded.contains("libdummy-npu"), "{recorded}");

    let other = HostDirectory::new().unwrap();
    other.add_class("thing", &outside).unwrap();
    let class = other.classes().join("thing.toml");
    let check = |more: &[&str]| {
        let arguments = [&["class", "check", class.to_str().unwrap()], more].concat();
        boathook(&other, &arguments, b"")
    };
    let ran = check(&[]);
    assert_says(&ran.stdout, &["nothing matches /run/thing{index:number}"]);
    let ran = check(&["--host", file.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(code::SUCCESS), "{}", ran.stderr);
    assert!(ran.stdout.contains("thing-7"), "{}", ran.stdout);
    let ran = check(&["--as-plugin"]);
    assert_eq!(ran.status.code(), Some(code::FAILURE), "{}", ran.stderr);
    let said = "/run is not mounted in the plugin's container";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    let shipped = other.classes().join("dummy-npu.toml");
    let arguments = ["class", "check", "--as-plugin", shipped.to_str().unwrap()];
    succeeds(&other, &arguments);
}
