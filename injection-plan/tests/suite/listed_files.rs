//! Tests of lists on the host that name files for containers, and of lists that cannot be used.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::host::RealHost;
use injection_plan::plan::Action;
use injection_plan::request::Request;
use tempfile::TempDir;

use crate::planning::{asker, parse, plan, with_causes};

const CLASS: &str = r#"version = 1
resource = "example.com/chip"
request = { env = "CHIPS", lists_env = "CHIP_LISTS", default_lists = ["base"] }
discover = [{ count = 1 }]
device = { id = "chip-{index}" }
[[edits]]
files_listed_in = "/etc/chip.d/{list:lower}.list"
"#;

fn class(text: &str) -> Result<DeviceClass, String> {
    parse("chip", text)
}

/// Returns a host with these lists and some files.
fn host(lists: &[(&str, &[u8])]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in ["etc/chip.d", "opt/chip/lib", "tmp"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(root.path().join("tmp"), open).unwrap();
    for file in ["opt/chip/tool", "opt/chip/tool-2", "tmp/tool"] {
        fs::write(root.path().join(file), "").unwrap();
    }
    symlink("tool-2", root.path().join("opt/chip/link")).unwrap();
    for (name, text) in lists {
        let list = root.path().join("etc/chip.d").join(name);
        fs::write(&list, text).unwrap();
        fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
    }
    root
}

/// Plans a container that names these lists. Returns the paths in the container, and the
/// omitted files.
fn given(root: &TempDir, lists: &str) -> Result<String, String> {
    let class = class(CLASS).unwrap();
    let mut variables = vec!["CHIPS=all".to_owned()];
    variables.extend((!lists.is_empty()).then(|| format!("CHIP_LISTS={lists}")));
    let request = Request::find(&class, &variables.into(), |_| None);
    let request = request.map_err(with_causes)?.unwrap();
    let host = RealHost::open(root.path()).unwrap();
    let plan = plan(&class, &request, &host, &asker())?;
    let place = |action: &Action| match action {
        Action::File(mount) | Action::Directory(mount) if mount.source == mount.path => {
            mount.path.display().to_string()
        }
        Action::File(mount) => format!("{} from {}", mount.path.display(), mount.source.display()),
        other => panic!("{other:?}"),
    };
    let places = plan.steps.iter().map(|step| place(&step.action));
    let notes = plan.notes.iter().map(ToString::to_string);
    Ok(places.chain(notes).collect::<Vec<_>>().join("; "))
}

#[test]
fn a_container_gets_what_the_list_has_that_it_names() {
    let base =
        b"# The tool\n\n/opt/chip/tool\r\n  /opt/chip/lib/  \n/opt/chip/link\n/opt/chip/tool\n";
    let root = host(&[
        ("base.list", base),
        ("more.list", b"/opt/chip/tool-2\n/opt/chip/none\n/tmp/tool"),
        ("empty.list", b"# nothing\n"),
    ]);
    let base = "/opt/chip/lib; /opt/chip/link from /opt/chip/tool-2; /opt/chip/tool";
    // A file that an unprivileged user of the host could have created is omitted, as a missing
    // file is.
    let omitted = "chip: optional and not on this host: /opt/chip/none, /tmp/tool";
    for (lists, wanted) in [
        ("", base.to_owned()),
        (" , ", base.to_owned()),
        ("empty", String::new()),
        ("MORE", format!("/opt/chip/tool-2; {omitted}")),
        (
            "base, more,base",
            format!("{base}; /opt/chip/tool-2; {omitted}"),
        ),
    ] {
        assert_eq!(given(&root, lists), Ok(wanted), "{lists}");
    }
    let absent = "chip: optional and not on this host: /etc/chip.d/base.list";
    assert_eq!(given(&host(&[]), ""), Ok(absent.to_owned()));
}

#[test]
fn a_list_that_cannot_be_used_stops_the_container_with_the_reason() {
    let many: String = (0..513).map(|number| format!("/opt/{number}\n")).collect();
    let long = format!("#{}\n", "x".repeat(70_000));
    for (text, wanted) in [
        (
            &b"opt/chip/tool"[..],
            "line 1 of /etc/chip.d/base.list: `opt/chip/tool` is not an",
        ),
        (
            b"/opt/chip/tool\n\n/opt/../etc/shadow",
            "line 3 of /etc/chip.d/base.list",
        ),
        (b"/", "`/` is not an absolute path"),
        (b"//etc", "`//etc` is not an absolute path"),
        (b"/opt/./chip", "`/opt/./chip` is not"),
        (b"/opt/chip\0/tool", "is not an absolute path"),
        (b"/opt/\xff", "/etc/chip.d/base.list is not UTF-8"),
        (many.as_bytes(), "has 513 paths; at most 512 are read"),
        (long.as_bytes(), "is longer than 65536 bytes"),
    ] {
        let error = given(&host(&[("base.list", text)]), "").unwrap_err();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    let root = host(&[
        ("base.list", b"/opt/chip/tool"),
        ("loose.list", b"/opt/chip/tool"),
    ]);
    fs::create_dir(root.path().join("etc/chip.d/directory.list")).unwrap();
    let loose = root.path().join("etc/chip.d/loose.list");
    fs::set_permissions(loose, fs::Permissions::from_mode(0o666)).unwrap();
    let seventeen: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    for (lists, wanted) in [
        ("loose", "loose.list has mode 0666"),
        (
            "directory",
            "directory.list is a directory, not a list of files",
        ),
        ("gone", "/etc/chip.d/gone.list does not exist"),
        ("base,gone", "/etc/chip.d/gone.list does not exist"),
        ("../../etc/passwd", "list of files"),
        ("a/b", "list of files"),
        (&seventeen.join(","), "17 lists of files are too many"),
        (&"x,".repeat(40_000), "too long"),
    ] {
        let error = given(&root, lists).unwrap_err();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn lists_and_their_variable_go_together() {
    let without = "request = { env = \"CHIPS\" }";
    let request = CLASS
        .lines()
        .find(|line| line.starts_with("request"))
        .unwrap();
    let no_list = CLASS
        .lines()
        .filter(|line| !line.starts_with("files_listed_in"));
    let no_list = no_list.collect::<Vec<_>>().join("\n");
    for text in [CLASS.replace(request, without), no_list] {
        let error = class(&text).unwrap_err();
        assert!(error.contains("goes with `lists_env`"), "{error}");
    }
    let reserved = class(&CLASS.replace("CHIP_LISTS", "LD_PRELOAD")).unwrap_err();
    assert!(reserved.contains("another purpose"), "{reserved}");
    let unknown = class(&CLASS.replace("{list:lower}", "{lists}")).unwrap_err();
    assert!(unknown.contains("`lists`"), "{unknown}");
}

/// As the vendor's plugin gives the sockets and the shared memory of an MPS daemon
/// (k8s-device-plugin, internal/plugin/mps.go): every user of a container writes to both.
#[test]
fn a_daemons_directories_replace_those_of_the_container() {
    let root = host(&[]);
    for (path, mode) in [("run/mps/pipe", 0o755), ("run/mps/shm", 0o1777)] {
        fs::create_dir_all(root.path().join(path)).unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.path().join(path), mode).unwrap();
    }
    let config = "[class.chip]\ndirectories = [{ path = '/run/mps/pipe', writable = true }, \
                  { path = '/run/mps/shm', container_path = '/dev/shm', writable = true }]\n\
                  env = { CUDA_MPS_PIPE_DIRECTORY = '/run/mps/pipe' }\n";
    let config = Config::parse(Path::new("config.toml"), config).unwrap();
    let class = config.with_settings(class(CLASS).unwrap(), Path::new("chip.toml"));
    let class = class.unwrap();
    let request = Request::find(&class, &vec!["CHIPS=all".to_owned()].into(), |_| None);
    let host = RealHost::open(root.path()).unwrap();
    let plan = plan(&class, &request.unwrap().unwrap(), &host, &asker()).unwrap();
    let text = plan.to_string();
    for wanted in [
        "directory  chip  /run/mps/pipe (rbind,nosuid,nodev)",
        "directory  chip  /dev/shm from /run/mps/shm (rbind,nosuid,nodev)",
        "CUDA_MPS_PIPE_DIRECTORY=/run/mps/pipe",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}
