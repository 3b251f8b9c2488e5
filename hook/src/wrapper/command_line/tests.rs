//! Tests command lines as engines and users write them.

use super::*;

fn parse(line: &str) -> CommandLine {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    CommandLine::parse(&words)
}

fn created(line: &str) -> Option<NewContainer> {
    match parse(line).action {
        RuntimeCommand::Create(container) => Some(container),
        _ => None,
    }
}

#[test]
fn a_new_containers_bundle_is_found_however_it_is_written() {
    for (line, wanted) in [
        ("create c1", ". config.json c1"),
        ("run c1", ". config.json c1"),
        ("create --bundle /b c1", "/b config.json c1"),
        ("create --bundle=/b c1", "/b config.json c1"),
        ("create -b /b c1", "/b config.json c1"),
        ("create -b/b c1", "/b config.json c1"),
        ("create -b=/b c1", "/b config.json c1"),
        ("create -bundle /b c1", "/b config.json c1"),
        ("create -bundle=/b c1", "/b config.json c1"),
        ("create --bundle= c1", " config.json c1"),
        ("run -db /b c1", "/b config.json c1"),
        ("run -d -b relative/b c1", "relative/b config.json c1"),
        ("run --bundle /a --bundle /b c1", "/b config.json c1"),
        ("create c1 --bundle /b", "/b config.json c1"),
        ("create --bundle /b -- -c1", "/b config.json -c1"),
        ("create -- c1 --bundle /b", ". config.json c1"),
        ("-- create --bundle /b c1", "/b config.json c1"),
        // These options are parsed as Go's package flag does.
        ("run -keep -b /b c1", "/b config.json c1"),
        ("run -keep=true -detach -b /b c1", "/b config.json c1"),
        ("run --keep=false -b=/b c1", "/b config.json c1"),
        ("create -no-pivot -b /b c1", "/b config.json c1"),
        ("run -no-subreaper -no-new-keyring c1", ". config.json c1"),
        ("-debug -systemd-cgroup run -b /b c1", "/b config.json c1"),
        ("-root=/r -rootless true run -b /b c1", "/b config.json c1"),
        ("run -pid-file -b -bundle /b c1", "/b config.json c1"),
        ("run -b -keep c1", "-keep config.json c1"),
        ("run -b - c1", "- config.json c1"),
        ("create --no-pivot --bundle /b c1", "/b config.json c1"),
        ("create --pid-file -b c1", ". config.json c1"),
        ("create --console-socket=/s -b /b c1", "/b config.json c1"),
        ("create -p /pid -b /b c1", "/b config.json c1"),
        ("create -f other.json -b /b c1", "/b other.json c1"),
        (
            "run --keep --preserve-fds 3 -b /b run",
            "/b config.json run",
        ),
        ("--root /r create -b /b c1", "/b config.json c1"),
        ("--root create create -b /b c1", "/b config.json c1"),
        ("-r /r -s create -b /b c1", "/b config.json c1"),
        (
            "--debug --systemd-cgroup --criu x run -b /b c1",
            "/b config.json c1",
        ),
        (
            "--cgroup-manager disabled --rootless=true run -b /b c1",
            "/b config.json c1",
        ),
        ("create", ". config.json "),
        ("create --bundle", ". config.json "),
    ] {
        let found = created(line).unwrap();
        let (bundle, config) = (found.bundle.display(), found.config_file_name.display());
        let found = format!("{bundle} {config} {}", found.id);
        assert_eq!(found, wanted, "{line}");
    }
}

#[test]
fn everything_else_makes_no_container() {
    for line in [
        "",
        "--version",
        "-v",
        "--help",
        "--help create c1",
        "create --help",
        "create -b /b -h",
        "run -?",
        "--root /r",
        "--root create",
        "start c1",
        "state create",
        "delete --force create",
        "exec c1 create --bundle /b",
        "restore --bundle /b c1",
        "spec --bundle /b",
        "--log create delete run",
        "createx",
        "create -help",
        "create --help=true c1",
        "update c1",
        "update --memory 5 --resources",
        "update --resources f",
        "update -h -r f c1",
    ] {
        assert_eq!(parse(line).action, RuntimeCommand::Other, "{line}");
    }
}

#[test]
fn the_resources_of_an_update_are_found() {
    for (line, global_arguments, id, resources, argument) in [
        ("update --resources - c1", 0, "c1", "-", 2),
        ("update --resources=/f c1", 0, "c1", "/f", 1),
        ("update -resources=/f c1", 0, "c1", "/f", 1),
        ("update -r /f c1", 0, "c1", "/f", 2),
        ("update -r/f c1", 0, "c1", "/f", 1),
        ("update c1 -r /f", 0, "c1", "/f", 3),
        (
            "--root /r --log /l update --memory 5 -r - c1",
            4,
            "c1",
            "-",
            8,
        ),
        (
            "update --resources /a --resources /b -- -c",
            0,
            "-c",
            "/b",
            4,
        ),
    ] {
        let wanted = RuntimeCommand::Update(UpdateCommand {
            global_argument_count: global_arguments,
            id: id.into(),
            resources_path: resources.into(),
            resources_argument_index: argument,
        });
        assert_eq!(parse(line).action, wanted, "{line}");
    }
}

#[test]
fn the_engines_log_is_found() {
    for (line, wanted) in [
        ("create c1", None),
        ("--log /l create c1", Some(("/l", false))),
        ("--log=/l --log-format json create c1", Some(("/l", true))),
        ("--log-format=json --log /l delete c1", Some(("/l", true))),
        ("-log /l -log-format json create c1", Some(("/l", true))),
        ("-l /l start c1", Some(("/l", false))),
        ("--log-format json create c1", None),
        ("create --log /l c1", None),
    ] {
        let wanted = wanted.map(|(path, json)| RuntimeLog {
            path: path.into(),
            is_json: json,
        });
        assert_eq!(parse(line).log, wanted, "{line}");
    }
}

#[test]
fn an_argument_need_not_be_text() {
    let arguments = [
        OsString::from("create"),
        OsStr::from_bytes(b"--bundle=/\xff").into(),
        OsStr::from_bytes(b"--\xff").into(),
        OsStr::from_bytes(b"-\xffb").into(),
        "/b".into(),
        OsStr::from_bytes(b"c\xff").into(),
    ];
    let RuntimeCommand::Create(found) = CommandLine::parse(&arguments).action else {
        panic!("no container");
    };
    assert_eq!(found.bundle, PathBuf::from("/b"));
    assert_eq!(found.id, "c\u{fffd}");
}
