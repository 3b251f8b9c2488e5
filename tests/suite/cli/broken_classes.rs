//! Class files that are broken in every way, beside containers that request nothing, their
//! class and another one.

use std::fs;

use harness::captured::Captured;
use harness::class_files;
use harness::demo_host::{DemoHost, HostDirectory};

use super::{assert_refused, boathook, bundle, bundle_of, code, host_with_thing, of_pod, prestart};
use crate::broken_classes::{Consequence, WAYS, add_broken_classes, set_mode, write};

/// The hook for a container with this variable beside those that most have. Of the class that
/// can be used it wants nothing, since here is no container that could get it.
fn start(host: &HostDirectory, variable: &str) -> Captured {
    start_with(
        host,
        variable,
        if variable == DemoHost::VARIABLE {
            "void"
        } else {
            "all"
        },
    )
}

fn start_with(host: &HostDirectory, variable: &str, value: &str) -> Captured {
    let env = [("PATH", "/bin"), ("HOME", "/"), (variable, value)];
    prestart(host, &bundle(&env))
}

fn assert_starts(ran: &Captured, case: &str) {
    assert_eq!(
        ran.status.code(),
        Some(code::SUCCESS),
        "{case}: {}",
        ran.stderr
    );
    assert_eq!(ran.stdout, "", "{case}");
}

#[test]
fn a_broken_class_file_stops_only_containers_that_request_its_class() {
    if !nix::unistd::geteuid().is_root() {
        return skip::report(module_path!(), "needs root, to give files to others");
    }
    for (way, consequence, break_file) in WAYS {
        let host = HostDirectory::new().unwrap();
        let classes = add_broken_classes(&host, break_file);
        assert_starts(&start(&host, "A"), way);
        assert_starts(&start(&host, DemoHost::VARIABLE), way);
        for class in &classes {
            let ran = start(&host, class.variable());
            let file = class.file.display().to_string();
            let case = format!("{file} {way}");
            match consequence {
                Consequence::Refused => {
                    assert_eq!(
                        ran.status.code(),
                        Some(code::CONFIG),
                        "{case}: {}",
                        ran.stderr
                    );
                    assert!(ran.stderr.contains(&file), "{case}: {}", ran.stderr);
                }
                Consequence::LeftOut => {
                    assert_starts(&ran, &case);
                    let said = format!("class left out: {file}");
                    assert!(ran.stderr.contains(&said), "{case}: {}", ran.stderr);
                }
                Consequence::Disabled => assert_starts(&ran, &case),
            }
        }
        let class = &classes[0];
        // As images and engines set it where nothing is wanted.
        assert_starts(&start_with(&host, class.variable(), "void"), way);
        // A container that names the class is stopped by every file that cannot be used.
        let name = class.file.file_stem().unwrap().to_str().unwrap();
        let key = format!("devices.boathook.dev/{name}");
        let ran = prestart(&host, &bundle_of(&of_pod(&[(&key, "0")])));
        let wanted = match consequence {
            Consequence::Disabled => (code::REQUEST, key),
            _ => (code::CONFIG, class.file.display().to_string()),
        };
        assert_eq!(ran.status.code(), Some(wanted.0), "{way}: {}", ran.stderr);
        assert!(ran.stderr.contains(&wanted.1), "{way}: {}", ran.stderr);
    }
}

/// Whoever may write to a class file could otherwise stop any container of the host.
#[test]
fn a_file_that_others_can_change_stops_no_container_by_a_variable_of_their_choice() {
    let host = HostDirectory::new().unwrap();
    let file = host.classes().join("thing.toml");
    for (variable, text, is_refused) in [
        ("PATH", "env = 'PATH'", false),
        ("HOME", "env = 'HOME'", false),
        ("MYSQL_DATABASE", "env = 'MYSQL_DATABASE'", false),
        ("MYSQL_DATABASE", "env = '\\u004dYSQL_DATABASE'", false),
        (DemoHost::VARIABLE, "env = 'DUMMY_VISIBLE_DEVICES'", false),
        (
            "THING_VISIBLE_DEVICES",
            "# env = 'THING_VISIBLE_DEVICES'",
            false,
        ),
        (
            "THING_VISIBLE_DEVICES",
            "env = 'THING_VISIBLE_DEVICES'",
            true,
        ),
        ("THING_CARDS", "env = 'THING_CARDS'\nnoodles = [", true),
    ] {
        write(&file, &format!("version = 1\n[request]\n{text}\n"));
        set_mode(&file, 0o666);
        let ran = start(&host, variable);
        let fix = format!("run: chmod go-w {}", file.display());
        if is_refused {
            assert_refused(&ran, code::CONFIG, &[&fix]);
        } else {
            assert_starts(&ran, text);
            assert!(ran.stderr.contains(&fix), "{text}: {}", ran.stderr);
        }
    }
}

/// A file that masks one of a release says less about its class than that one.
#[test]
fn the_class_of_a_masked_file_is_requested_by_its_variable() {
    let host = HostDirectory::new().unwrap();
    let own = host.path().join("own");
    fs::create_dir(&own).unwrap();
    let config = fs::read_to_string(host.config_file()).unwrap();
    let classes = format!("classes = [{:?}, {own:?}]\n", host.classes());
    let (_, rest) = config.split_once('\n').unwrap();
    write(&host.config_file(), &format!("{classes}{rest}"));
    let file = own.join("dummy-npu.toml");
    for (text, mode, variable, is_refused) in [
        ("version = 1\nresource = ", 0o644, DemoHost::VARIABLE, true),
        ("", 0o666, DemoHost::VARIABLE, true),
        (
            "request = { env = 'OTHER_DEVICES' }",
            0o666,
            DemoHost::VARIABLE,
            true,
        ),
        (
            "request = { env = 'OTHER_DEVICES' }",
            0o666,
            "OTHER_DEVICES",
            false,
        ),
        // Root's file says so.
        ("request = { env = 'OTHER' }", 0o644, "OTHER", true),
        (
            "request = { env = 'OTHER' }",
            0o644,
            DemoHost::VARIABLE,
            false,
        ),
        ("", 0o644, DemoHost::VARIABLE, false),
    ] {
        write(&file, text);
        set_mode(&file, mode);
        let ran = start_with(&host, variable, "all");
        let case = format!("{text:?} {mode:o} {variable}");
        if is_refused {
            assert_refused(&ran, code::CONFIG, &[&file.display().to_string()]);
        } else {
            assert_starts(&ran, &case);
        }
    }
}

#[test]
fn a_class_directory_that_cannot_be_read_stops_only_containers_that_request_devices() {
    let host = HostDirectory::new().unwrap();
    fs::remove_dir_all(host.classes()).unwrap();
    fs::write(host.classes(), "").unwrap();
    assert_starts(&start(&host, "A"), "no request");
    assert_starts(&start_with(&host, "CHIP_DEVICES", "void"), "void");
    let ran = start(&host, "CHIP_DEVICES");
    assert_eq!(ran.status.code(), Some(code::CONFIG), "{ran:?}");
    assert!(
        ran.stderr.contains(host.classes().to_str().unwrap()),
        "{ran:?}"
    );
}

/// A label is no part of what a container gets. The plugin, which makes labels, does not use the
/// class, and an administrator learns why.
#[test]
fn a_broken_expression_of_a_label_stops_no_container() {
    for (table, stops_containers) in [
        (
            "[labels]\n'example.com/kind' = { value = 'a', regex = '(' }\n",
            false,
        ),
        (
            "[[attributes]]\nname = 'kind'\nvalue = 'a'\nregex = '('\n",
            true,
        ),
    ] {
        let host = host_with_thing(&format!(
            "discover = [{{ count = 1 }}]\ndevice = {{ id = 'thing-{{index}}' }}\n{table}"
        ));
        let ran = start(&host, "THINGS");
        if stops_containers {
            assert_refused(&ran, code::CONFIG, &["bad regex `(`"]);
        } else {
            assert_starts(&ran, table);
        }
        let file = host.classes().join("thing.toml");
        let arguments = ["class", "check", file.to_str().unwrap()];
        let checked = boathook(&host, &arguments, b"");
        assert_ne!(checked.status.code(), Some(code::SUCCESS), "{table}");
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(said.contains("bad regex `(`"), "{said}");
    }
}

/// In WSL and on a Jetson a file of the host's takes the place of nvidia-gpu, as the heads of their
/// classes say. The shipped classes that extend nvidia-gpu, and are not enabled, do not fit it.
#[test]
fn a_disabled_class_whose_base_is_replaced_is_no_problem() {
    let replacement = "extends = 'nvidia-wsl'\nversion = 1\n\
        request = { env = 'NVIDIA_VISIBLE_DEVICES' }\n";
    // The replacement, its file, what follows in config.toml, and whether a class is reported.
    for (name, text, more, is_reported) in [
        ("nvidia-gpu", replacement, "", false),
        // An empty file: the class is absent.
        ("nvidia-gpu", "", "", false),
        // The administrator wants one of them.
        (
            "nvidia-gpu",
            replacement,
            "[class.gpu-share]\nenabled = true\n",
            true,
        ),
        // The administrator's own mistake.
        ("amd-gpu", "extends = 'nvidia-wsl'\nversion = 2\n", "", true),
    ] {
        let host = HostDirectory::new().unwrap();
        let (own, shipped) = (host.path().join("own"), host.path().join("shipped"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&shipped).unwrap();
        class_files::copy_all(&shipped).unwrap();
        fs::write(own.join(format!("{name}.toml")), text).unwrap();
        let config = format!(
            "classes = [{shipped:?}, {own:?}]\nhost_root = {:?}\n{more}",
            host.root()
        );
        fs::write(host.config_file(), config).unwrap();
        host.add_file("/usr/lib/wsl/lib/libcuda.so.1", "").unwrap();
        let listed = boathook(&host, &["list"], b"");
        let said = format!("{name} {more}: {}", listed.stderr);
        assert_eq!(listed.status.success(), !is_reported, "{said}");
        assert_eq!(listed.stderr.contains(".toml"), is_reported, "{said}");
        let bundle = bundle(&[("NVIDIA_VISIBLE_DEVICES", "void")]);
        let arguments = ["explain", "--bundle", bundle.path().to_str().unwrap()];
        let explained = boathook(&host, &arguments, b"");
        assert_eq!(
            explained.status.code(),
            Some(code::SUCCESS),
            "{explained:?}"
        );
        let checked = boathook(&host, &["check"], b"");
        assert_eq!(
            checked.stdout.contains(".toml:"),
            is_reported,
            "{checked:?}"
        );
    }
}
