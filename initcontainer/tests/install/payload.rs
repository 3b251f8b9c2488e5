//! Tests of the installed files and of their sources.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use runtime_config::Engine;

use crate::site::{Site, complaint, said};
use crate::tree;

/// Returns the names of the installed class files.
fn classes(site: &Site) -> Vec<String> {
    let dir = Path::new("/opt/boathook/current/classes.d");
    let names = site.host.list(dir).unwrap().into_iter();
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name != ".classes.json").collect()
}

#[test]
fn a_build_directory_and_relative_paths_are_sources() {
    let site = Site::with_containerd();
    let flat = site.release().join("flat");
    fs::create_dir(&flat).unwrap();
    for name in initcontainer::payload::PROGRAM_NAMES {
        fs::copy(site.release().join("bin").join(name), flat.join(name)).unwrap();
    }
    let mut install =
        site.without_source(&["install", "--source", "flat", "--classes", "classes.d"]);
    said(&install.current_dir(site.release()).output().unwrap());
    assert_eq!(classes(&site), ["dummy-npu.toml"]);
    assert!(site.path("opt/boathook/current/bin/boathook").exists());
}

#[test]
fn class_files_that_are_missing_are_an_error_unless_none_are_wanted() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let empty = site.release().join("empty");
    fs::create_dir(&empty).unwrap();
    for (dir, why) in [
        ("/nonexistent", "No such file"),
        (empty.to_str().unwrap(), "no file in it"),
    ] {
        let message = complaint(&site.run(&["install", "--classes", dir]));
        for part in [
            &*format!("no class files in {dir}: {why}"),
            "--classes=none",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let errors = usize::from(dir == "/nonexistent");
        assert_eq!(message.matches("os error").count(), errors);
    }
    assert_eq!(tree::snapshot(site.root()), before);
    said(&site.run(&["install", "--classes=none"]));
    assert_eq!(classes(&site), [""; 0]);
}

#[test]
fn own_class_files_are_added_and_replace_those_of_the_release() {
    let site = Site::with_containerd();
    let own = site.release().join("own");
    fs::create_dir(&own).unwrap();
    let install = ["install", "--own-classes", own.to_str().unwrap()];
    // An empty ConfigMap is the usual case.
    said(&site.run(&install));
    assert_eq!(classes(&site), ["dummy-npu.toml"]);

    let shipped = fs::read_to_string(site.release().join("classes.d/dummy-npu.toml")).unwrap();
    let changed = format!("# Ours.\n{shipped}");
    fs::write(own.join("dummy-npu.toml"), &changed).unwrap();
    fs::write(own.join("mychip.toml"), &shipped).unwrap();
    said(&site.run(&install));
    assert_eq!(classes(&site), ["dummy-npu.toml", "mychip.toml"]);
    let installed = site.path("opt/boathook/current/classes.d/dummy-npu.toml");
    assert_eq!(fs::read_to_string(installed).unwrap(), changed);

    // An empty file disables the class of its name.
    fs::write(own.join("dummy-npu.toml"), "").unwrap();
    let text = said(&site.run(&install));
    assert!(!text.contains("left out"), "{text}");
    let installed = site.path("opt/boathook/current/classes.d/dummy-npu.toml");
    assert_eq!(fs::read_to_string(installed).unwrap(), "");
}

/// A node keeps the devices of all other classes. The broken file is installed, so that the hook
/// and the plugin name it and do not use the class of the release in its place.
#[test]
fn an_own_class_file_with_a_mistake_is_left_out_alone() {
    let site = Site::with_containerd();
    let own = site.release().join("own");
    fs::create_dir(&own).unwrap();
    let install = ["install", "--own-classes", own.to_str().unwrap()];
    let shipped = fs::read_to_string(site.release().join("classes.d/dummy-npu.toml")).unwrap();
    for (broken, reason) in [
        ("version = ", "mychip.toml:1: "),
        (
            &*shipped.replace("resource =", "resorce ="),
            "unknown key `resorce`",
        ),
    ] {
        fs::write(own.join("mychip.toml"), broken).unwrap();
        let output = site.run(&install);
        let text = said(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("class left out: "), "{text}");
        assert!(text.contains(reason), "{text}");
        assert_eq!(classes(&site), ["dummy-npu.toml", "mychip.toml"]);
    }
    fs::remove_file(own.join("mychip.toml")).unwrap();
    fs::create_dir(own.join("mychip.toml")).unwrap();
    let message = complaint(&site.run(&install));
    assert!(message.contains("not a regular file"), "{message}");
}

/// In a rollout of a configuration with a mistake, a node keeps the one that it has. A node
/// without any is not installed.
#[test]
fn a_given_configuration_with_a_mistake_does_not_replace_the_installed_one() {
    let site = Site::with_containerd();
    let file = site.release().join("config.toml");
    let install = ["install", "--config", file.to_str().unwrap()];
    let mistakes = [
        ("enabeld = true", "unknown key `enabeld`"),
        ("except = [{ modle = 'A' }]", "`modle`"),
        (
            "forbid = ['compute']",
            "`compute` in `forbid` is not a capability",
        ),
    ];
    fs::write(&file, "[class.dummy-npu]\nenabeld = true\n").unwrap();
    let message = complaint(&site.run(&install));
    assert!(message.contains("unknown key `enabeld`"), "{message}");

    let right = "[class.dummy-npu]\nenabled = true\n";
    fs::write(&file, right).unwrap();
    said(&site.run(&install));
    let before = tree::snapshot(site.root());
    for (line, reason) in mistakes {
        fs::write(&file, format!("[class.dummy-npu]\n{line}\n")).unwrap();
        let output = site.run(&install);
        let text = said(&output) + &String::from_utf8_lossy(&output.stderr);
        for part in ["/etc/boathook/config.toml stays as it is", reason] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(tree::snapshot(site.root()), before);
    }

    // With classes of its own directories, only the hook knows whether a table fits its class.
    let elsewhere = "classes = ['/opt/site']\n[class.dummy-npu]\nexcept = [{ modle = 'A' }]\n";
    fs::write(&file, elsewhere).unwrap();
    said(&site.run(&install));
    assert_eq!(site.read("etc/boathook/config.toml"), elsewhere);

    // The next configuration without a mistake is used.
    let other = "[class.dummy-npu]\nenabled = false\n";
    fs::write(&file, other).unwrap();
    said(&site.run(&install));
    assert_eq!(site.read("etc/boathook/config.toml"), other);
}

/// On a host without a better configuration only the class of the table is missing, as in the
/// plugin.
#[test]
fn a_table_that_does_not_fit_its_class_leaves_out_the_class_if_there_is_no_better_configuration() {
    let site = Site::with_containerd();
    let file = site.release().join("config.toml");
    for more in ["", "[trust]\ntrusted_pods = ['default']\n"] {
        let text = format!("[class.dummy-npu]\nexcept = [{{ modle = 'A' }}]\n{more}");
        fs::write(&file, &text).unwrap();
        let output = site.run(&["install", "--config", file.to_str().unwrap()]);
        let printed = said(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("class left out: "), "{printed}");
        assert_eq!(site.read("etc/boathook/config.toml"), text);
    }
}

/// The administrator's own file stays as it is. The installation says which class is left out.
#[test]
fn a_table_of_an_edited_configuration_that_does_not_fit_its_class_is_reported() {
    let site = Site::with_containerd();
    said(&site.run(&["install"]));
    for (table, is_reported) in [
        ("except = [{ modle = 'A' }]", true),
        ("except = ['npu-1']", false),
    ] {
        let text = format!("[class.dummy-npu]\n{table}\n");
        fs::write(site.path("etc/boathook/config.toml"), &text).unwrap();
        let output = site.run(&["install"]);
        let printed = said(&output) + &String::from_utf8_lossy(&output.stderr);
        let place = "/etc/boathook/config.toml: [class.dummy-npu]: ";
        assert_eq!(
            printed.contains(&format!("class left out: {place}")),
            is_reported,
            "{printed}"
        );
        assert_eq!(site.read("etc/boathook/config.toml"), text);
    }

    // The table is for the administrator's own class, which has the attribute.
    let shipped = fs::read_to_string(site.release().join("classes.d/dummy-npu.toml")).unwrap();
    let own = shipped + "\n[[attributes]]\nname = \"modle\"\nvalue = \"A\"\n";
    site.write("etc/boathook/classes.d/dummy-npu.toml", &own);
    let config = site.release().join("config.toml");
    let text = "[class.dummy-npu]\nexcept = [{ modle = 'A' }]\n";
    fs::write(&config, text).unwrap();
    fs::write(site.path("etc/boathook/config.toml"), text).unwrap();
    for arguments in [
        &["install"][..],
        &["install", "--config", config.to_str().unwrap()],
    ] {
        let output = site.run(arguments);
        let printed = said(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(!printed.contains("[class.dummy-npu]"), "{printed}");
    }
}

#[test]
fn a_source_without_programs_names_what_would_do() {
    let site = Site::with_containerd();
    let mut install = site.without_source(&["install", "--source", "/etc"]);
    let message = complaint(&install.output().unwrap());
    for part in ["/etc has no programs", "--source"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_release_with_more_classes_is_not_replaced_unasked() {
    let site = Site::with_containerd();
    let class = site.release().join("classes.d/dummy-npu.toml");
    fs::copy(&class, site.release().join("classes.d/second.toml")).unwrap();
    site.install("0.1.0", &[Engine::Containerd]);
    let before = tree::snapshot(site.root());
    fs::remove_file(site.release().join("classes.d/second.toml")).unwrap();
    let message = complaint(&site.run(&["install"]));
    assert!(message.contains("second.toml; use --classes"), "{message}");
    assert_eq!(tree::snapshot(site.root()), before);

    let classes_of_release = site.release().join("classes.d");
    let text = said(&site.run(&["install", "--classes", classes_of_release.to_str().unwrap()]));
    assert!(text.contains("removed classes: second.toml\n"), "{text}");
    assert_eq!(classes(&site), ["dummy-npu.toml"]);
}

/// Each installation writes the index again if it is not that of the files, and nothing else.
#[test]
fn the_class_index_is_that_of_the_class_files() {
    let site = Site::with_containerd();
    let classes = site.path("opt/boathook/current/classes.d");
    let (index, class) = (
        classes.join(".classes.json"),
        classes.join("dummy-npu.toml"),
    );
    said(&site.run(&["install"]));
    let program = site.path("opt/boathook/current/bin/boathook");
    let inode = || fs::metadata(&program).unwrap().ino();
    let (before, installed) = (inode(), fs::read_to_string(&index).unwrap());
    assert!(
        installed.contains("\"DUMMY_VISIBLE_DEVICES\""),
        "{installed}"
    );
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 4] = [
        ("removed", &|| fs::remove_file(&index).unwrap()),
        ("writable for others", &|| set_mode(&index, 0o666)),
        ("damaged", &|| fs::write(&index, "{").unwrap()),
        ("of a class file that was changed and changed back", &|| {
            set_mode(&class, 0o600);
            set_mode(&class, 0o644);
        }),
    ];
    for (change, make) in changes {
        make();
        let text = said(&site.run(&["install"]));
        assert!(!text.contains("class index"), "{change}: {text}");
        assert_eq!(fs::metadata(&index).unwrap().mode(), 0o100_644, "{change}");
        let changed = class.metadata().unwrap();
        let changed = changed.ctime() * 1_000_000_000 + changed.ctime_nsec();
        let now = fs::read_to_string(&index).unwrap();
        assert!(
            now.contains(&format!("\"changed\":{changed}}}")),
            "{change}: {now}"
        );
        assert_eq!(inode(), before, "{change}: the programs stay");
    }
    let now = fs::read_to_string(&index).unwrap();
    said(&site.run(&["install"]));
    assert_eq!(fs::read_to_string(&index).unwrap(), now);
    said(&site.run(&["uninstall"]));
    assert!(!site.path("opt/boathook").exists());
}

/// The first versions wrote an index file beside the class files.
#[test]
fn an_older_versions_index_of_class_files_goes_with_it() {
    const INDEX: &str = "opt/boathook/current/classes.d/.variables";
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    // The index is also removed if the same version is installed again.
    site.write(INDEX, "dummy-npu.toml 1 DUMMY_VISIBLE_DEVICES\n");
    said(&site.run(&["install"]));
    assert_eq!(classes(&site), ["dummy-npu.toml"]);
    site.write(INDEX, "dummy-npu.toml 1 DUMMY_VISIBLE_DEVICES\n");
    for version in ["0.2.0", "0.3.0"] {
        site.install(version, &[Engine::Containerd]);
        assert_eq!(classes(&site), ["dummy-npu.toml"]);
    }
    site.write(INDEX, "dummy-npu.toml 1 DUMMY_VISIBLE_DEVICES\n");
    said(&site.run(&["uninstall"]));
    assert!(!site.path("opt/boathook").exists());
}

#[test]
fn what_others_put_into_the_directory_stays() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    site.write("opt/boathook/notes.txt", "theirs");
    site.make_dirs(&["opt/boathook/backup"]);
    site.install("0.2.0", &[Engine::Containerd]);
    site.install("0.3.0", &[Engine::Containerd]);
    let names = site.host.list(Path::new("/opt/boathook")).unwrap();
    let both = ["0.2.0", "0.3.0", "backup", "current", "notes.txt", "state"];
    assert_eq!(names, both);
    let text = said(&site.run(&["uninstall"]));
    let kept = "kept /opt/boathook: it holds backup, notes.txt\n";
    assert!(text.contains(kept), "{text}");
    let names = site.host.list(Path::new("/opt/boathook")).unwrap();
    assert_eq!(names, ["backup", "notes.txt"]);
}

#[test]
fn a_user_without_the_rights_gets_one_message() {
    if !nix::unistd::geteuid().is_root() {
        skip::report("payload::a_user_without_the_rights", "needs root");
        return;
    }
    for command in ["install", "uninstall"] {
        let mut command_of_user = Command::new(env!("CARGO_BIN_EXE_boathook-init"));
        command_of_user.arg(command).uid(1000).gid(1000);
        // The program cannot be started if other users cannot read the build directory.
        if let Ok(output) = command_of_user.output() {
            let said = "boathook-init: must be run as root, such as with sudo\n";
            assert_eq!(complaint(&output), said);
        }
    }
}
