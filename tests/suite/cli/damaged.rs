//! What else may be in the place of each file that `boathook` reads or writes: it is named and
//! not waited for, a link's target stays, and what does not need the file goes on.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use harness::captured::Captured;
use harness::damage::{self, Damage};
use harness::demo_host::{DemoHost, HostDirectory};

use super::{boathook, bundle, bundle_of, code, of_pod, prestart};

const THING: &str = "version = 1\nresource = 'example.com/thing'\nrequest = { env = 'THINGS' }\n\
    discover = [{ count = 1 }]\ndevice = { id = 'thing-{index}' }\n";

/// A host with the class `thing` beside `dummy-npu`, on which one file is damaged.
struct Damaged {
    host: HostDirectory,
    damage: Damage,
    path: PathBuf,
    start: Instant,
}

impl Damaged {
    /// `text` is what the file has, and stays where only its owner or mode is wrong.
    fn new(damage: Damage, path: &str, text: Option<&str>) -> Self {
        let host = HostDirectory::new().unwrap();
        host.add_class("thing", THING).unwrap();
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        damage.put(&path).unwrap();
        let start = Instant::now();
        Self {
            host,
            damage,
            path,
            start,
        }
    }

    fn run(&self, arguments: &[&str]) -> Captured {
        boathook(&self.host, arguments, b"")
    }

    /// Fails unless a message names the file.
    #[track_caller]
    fn is_named_by(&self, ran: &Captured) {
        let said = format!("{}{}", ran.stdout, ran.stderr);
        let path = self.path.to_string_lossy();
        assert!(said.contains(&*path), "{:?}: {said}", self.damage);
    }
}

impl Drop for Damaged {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.start.elapsed() < damage::LIMIT, "{:?}", self.damage);
            assert!(self.damage.spares_victim(&self.path), "{:?}", self.damage);
        }
    }
}

#[test]
fn a_class_file() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "classes/thing.toml", Some(THING));
        let ran = damaged.run(&["list", "--all"]);
        assert!(ran.stdout.contains("npu-63"), "{damage:?}: {ran:?}");
        assert!(!ran.stdout.contains("thing-0"), "{damage:?}: {ran:?}");
        damaged.is_named_by(&ran);
        let nothing = bundle(&[("PATH", "/bin")]);
        let ran = prestart(&damaged.host, &nothing);
        assert_eq!(
            ran.status.code(),
            Some(code::SUCCESS),
            "{damage:?}: {ran:?}"
        );
    }
}

/// Without it the files are read.
#[test]
fn the_index_of_class_files() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "classes/.variables", Some("thing.toml 1 NO\n"));
        let ran = damaged.run(&["list", "--all"]).success().unwrap();
        assert!(ran.stdout.contains("thing-0"), "{damage:?}: {ran:?}");
        let ran = prestart(&damaged.host, &bundle(&[("THINGS", "no-such")]));
        assert_eq!(
            ran.status.code(),
            Some(code::REQUEST),
            "{damage:?}: {ran:?}"
        );
    }
}

#[test]
fn the_configuration() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "config.toml", None);
        let ran = damaged.run(&["list"]);
        assert_eq!(ran.status.code(), Some(code::CONFIG), "{damage:?}: {ran:?}");
        damaged.is_named_by(&ran);
    }
}

/// The message is on stderr, too.
#[test]
fn the_log() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "root/run/boathook/log", None);
        let ran = prestart(&damaged.host, &bundle(&[(DemoHost::VARIABLE, "no-such")]));
        assert_eq!(
            ran.status.code(),
            Some(code::REQUEST),
            "{damage:?}: {ran:?}"
        );
        assert!(ran.stderr.contains("no-such"), "{damage:?}: {ran:?}");
    }
}

#[test]
fn a_specification_of_ours() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "cdi/boathook-example.com-thing.json", Some("{}"));
        let cdi = damaged.host.path().join("cdi");
        let generate = ["cdi", "generate", "--output", cdi.to_str().unwrap()];
        let ran = damaged.run(&generate);
        damaged.is_named_by(&ran);
        assert!(
            cdi.join("boathook-dummy.com-npu.json").is_file(),
            "{damage:?}"
        );
        match damage {
            Damage::Directory => {
                assert_eq!(ran.status.code(), Some(code::CONFIG), "{ran:?}");
                assert!(
                    ran.stderr.contains("example.com/thing is left out"),
                    "{ran:?}"
                );
            }
            _ => {
                assert_eq!(
                    ran.status.code(),
                    Some(code::SUCCESS),
                    "{damage:?}: {ran:?}"
                );
                let written = fs::symlink_metadata(&damaged.path).unwrap();
                assert!(written.is_file(), "{damage:?}");
            }
        }
        let left = fs::read_dir(&cdi).unwrap().count();
        assert_eq!(left, 2 + usize::from(damage == Damage::Link), "{damage:?}");
    }
}

/// A file that engines cannot read either is no conflict.
#[test]
fn another_programs_specification() {
    for damage in Damage::kinds() {
        let damaged = Damaged::new(damage, "cdi/vendor.yaml", Some("kind: vendor.com/gpu\n"));
        let cdi = damaged.host.path().join("cdi");
        let output = cdi.to_str().unwrap();
        damaged
            .run(&["cdi", "generate", "--output", output])
            .success()
            .unwrap();
        assert!(cdi.join("boathook-example.com-thing.json").is_file());
        damaged
            .run(&["cdi", "list", "--directory", output])
            .success()
            .unwrap();
    }
}

/// Each form of a kind in YAML, without a parser of it.
#[test]
fn a_conflict_in_any_form_of_yaml_is_noticed() {
    for text in [
        "kind: example.com/thing\n",
        "\"kind\": example.com/thing\n",
        "kind: example.com/thing # the vendor's\n",
        "{cdiVersion: 0.5.0, kind: example.com/thing}\n",
        "x: &k example.com/thing\nkind: *k\n",
        "kind:\n  example.com/thing\n",
        "kind: \"example.com\\u002fthing\"\n",
    ] {
        let host = HostDirectory::new().unwrap();
        host.add_class("thing", THING).unwrap();
        let cdi = host.path().join("cdi");
        fs::create_dir(&cdi).unwrap();
        fs::write(cdi.join("vendor.yaml"), text).unwrap();
        let ran = boathook(
            &host,
            &["cdi", "generate", "--output", cdi.to_str().unwrap()],
            b"",
        );
        assert_eq!(ran.status.code(), Some(code::CONFIG), "{text}: {ran:?}");
        assert!(
            ran.stderr.contains("example.com/thing is left out"),
            "{text}: {ran:?}"
        );
        assert!(
            !cdi.join("boathook-example.com-thing.json").exists(),
            "{text}"
        );
    }
}

/// A pod's container gets no device without it, and starts if it asks for none.
#[test]
fn the_kubelets_checkpoint() {
    for damage in Damage::kinds() {
        // Owner and mode are the kubelet's own matter.
        if matches!(damage, Damage::ForeignOwner | Damage::Writable) {
            continue;
        }
        let damaged = Damaged::new(
            damage,
            "kubelet/device-plugins/kubelet_internal_checkpoint",
            None,
        );
        let kubelet = damaged.host.path().join("kubelet");
        damaged.host.trust_kubelet(&kubelet, "").unwrap();
        let mut config = of_pod(&[("boathook.dev/dummy-npu", "npu-0")]);
        config["process"] = serde_json::json!({"env": ["DUMMY_VISIBLE_DEVICES=npu-0"]});
        let ran = prestart(&damaged.host, &bundle_of(&config));
        damaged.is_named_by(&ran);
        // A link to nothing is the same as no record.
        let is_refused = damage != Damage::DanglingLink;
        assert_eq!(!ran.status.success(), is_refused, "{damage:?}: {ran:?}");
        let ran = prestart(&damaged.host, &bundle_of(&of_pod(&[])));
        assert_eq!(
            ran.status.code(),
            Some(code::SUCCESS),
            "{damage:?}: {ran:?}"
        );
        damaged.run(&["list", "--all"]);
    }
}

/// `check` looks at what is installed.
#[test]
fn files_that_check_reads() {
    for file in [
        "run/cdi/boathook-a.com-b.json",
        "etc/cdi/a.json",
        "opt/boathook/state/containerd.json",
    ] {
        for damage in Damage::kinds() {
            let damaged = Damaged::new(damage, &format!("root/{file}"), Some("{}"));
            let ran = damaged.run(&["check"]);
            let has_listed = ran.stdout.contains("dummy-npu");
            assert!(has_listed, "{file}: {damage:?}: {ran:?}");
        }
    }
}
