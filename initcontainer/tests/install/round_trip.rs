//! Uninstalling leaves the host as it was, to the byte.

use std::fs;
use std::os::unix::fs::symlink;

use initcontainer::layout::DEFAULT_CONFIG;
use runtime_config::Engine;

use crate::site::{Site, complaint, fixtures, said};
use crate::tree;

#[test]
fn every_fixture_comes_back_to_the_byte() {
    let mut seen = 0;
    for engine in fs::read_dir(fixtures()).unwrap().map(|e| e.unwrap()) {
        for case in fs::read_dir(engine.path())
            .unwrap()
            .map(|e| e.unwrap().path())
        {
            if case.join("error").exists() {
                continue;
            }
            let engine: Engine = engine.file_name().to_str().unwrap().parse().unwrap();
            let site = Site::new(&case.join("before"));
            let before = tree::snapshot(site.root());
            site.install("0.1.0", &[engine]);
            assert!(
                site.root()
                    .join("opt/boathook/current/bin/boathook")
                    .exists()
            );
            site.uninstall();
            assert_eq!(tree::snapshot(site.root()), before, "{}", case.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} fixtures found");
}

#[test]
fn what_others_put_beside_it_stays() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::create_dir(site.root().join("opt/theirs")).unwrap();
    fs::write(site.root().join("etc/boathook/theirs.toml"), "").unwrap();
    site.uninstall();
    assert!(site.root().join("opt/theirs").exists());
    assert!(site.root().join("etc/boathook/theirs.toml").exists());
    assert!(!site.root().join("opt/boathook").exists());
}

#[test]
fn directories_that_a_kubelet_made_go_if_they_are_empty() {
    let site = Site::with_containerd();
    for dir in ["opt", "etc"] {
        fs::create_dir_all(site.root().join(dir)).unwrap();
    }
    let before = tree::snapshot(site.root());
    // For volumes.
    for dir in ["opt/boathook", "etc/boathook"] {
        fs::create_dir(site.root().join(dir)).unwrap();
    }
    site.install("0.1.0", &[Engine::Containerd]);
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

/// While a claim is prepared its pod needs the hook, and boathook-dra to end.
#[test]
fn what_the_dra_driver_keeps_goes_when_no_claim_is_prepared() {
    let site = Site::with_containerd();
    let plugins = site.root().join("var/lib/kubelet/plugins");
    let cdi = site.root().join("run/cdi");
    fs::create_dir_all(&plugins).unwrap();
    fs::create_dir_all(&cdi).unwrap();
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    let driver = plugins.join("boathook.dev");
    fs::create_dir_all(driver.join("claims")).unwrap();
    fs::write(driver.join("serialize.lock"), "").unwrap();
    let record = driver.join("claims/u-1.json");
    fs::write(&record, "{}").unwrap();
    fs::write(cdi.join("boathook.dev-claim-u-1.json"), "{}").unwrap();
    let refused = complaint(&site.run(&["uninstall"]));
    assert!(refused.contains("the claims u-1 are prepared"), "{refused}");
    assert!(site.root().join("opt/boathook/current").exists());
    fs::remove_file(&record).unwrap();
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn own_classes_stay_and_are_listed() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::write(site.root().join("etc/boathook/classes.d/mine.toml"), "").unwrap();
    let undone = said(&site.run(&["uninstall"]));
    let kept = "kept /etc/boathook/classes.d: it holds mine.toml\n";
    assert!(undone.contains(kept), "{undone}");
    assert!(
        site.root()
            .join("etc/boathook/classes.d/mine.toml")
            .exists()
    );
}

#[test]
fn specifications_of_cdi_go_and_those_of_others_stay() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    let file = |path: &str, text: &str| {
        let path = site.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let ours = r#"{"cdiVersion": "0.5.0", "kind": "dummy.com/npu", "devices": []}"#;
    let gone = ["run/cdi", "etc/cdi"].map(|dir| {
        let name = format!("{dir}/boathook-dummy.com-npu.json");
        file(&name, ours)
    });
    let kept = [
        file("run/cdi/vendor.json", ours),
        file("etc/cdi/boathook-other.json", "{}"),
    ];
    let status = String::from_utf8(site.run(&["status"]).stdout).unwrap();
    let shown = "CDI specifications:\n  /etc/cdi/boathook-dummy.com-npu.json\n  \
                 /run/cdi/boathook-dummy.com-npu.json\n";
    assert!(status.contains(shown), "{status}");
    site.uninstall();
    assert!(gone.iter().all(|path| !path.exists()), "{gone:?}");
    assert!(kept.iter().all(|path| path.exists()), "{kept:?}");
}

#[test]
fn absolute_links_of_the_host_lead_to_the_host() {
    let site = Site::with_containerd();
    fs::create_dir_all(site.root().join("var/opt")).unwrap();
    symlink("/var/opt", site.root().join("opt")).unwrap();
    let before = tree::snapshot(site.root());
    site.install("0.1.0", &[Engine::Containerd]);
    assert!(
        site.root()
            .join("var/opt/boathook/0.1.0/bin/boathook")
            .exists()
    );
    site.uninstall();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_configuration_that_was_edited_is_kept() {
    let site = Site::with_containerd();
    site.install("0.1.0", &[]);
    let config = site.root().join("etc/boathook/config.toml");
    fs::write(&config, "classes = []\n").unwrap();
    site.install("0.2.0", &[]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "classes = []\n");
    site.uninstall();
    assert_eq!(fs::read_to_string(&config).unwrap(), "classes = []\n");
}

/// Installs with this configuration given, and returns what the program printed.
fn install_with(site: &Site, config: &str) -> String {
    let file = site.release().join("config.toml");
    fs::write(&file, config).unwrap();
    let file = file.to_str().unwrap();
    let output = site.run(&["install", "--engine", "none", "--config", file]);
    assert!(output.status.success(), "{output:?}");
    said(&output)
}

#[test]
fn a_given_configuration_is_kept_up_to_date() {
    let site = Site::with_containerd();
    let config = site.root().join("etc/boathook/config.toml");
    let given = site.root().join("opt/boathook/state/config.toml");
    let now = || fs::read_to_string(&config).unwrap();
    // The default of an installation without one is replaced too.
    site.install("0.1.0", &[]);
    assert_eq!(now(), DEFAULT_CONFIG);
    for text in ["[class.a]\nreplicas = 2\n", "[class.a]\nreplicas = 3\n"] {
        install_with(&site, text);
        assert_eq!(now(), text);
        assert_eq!(fs::read_to_string(&given).unwrap(), text);
        assert_eq!(install_with(&site, text).matches("config.toml").count(), 0);
    }
    site.uninstall();
    assert!(!config.exists());
}

#[test]
fn a_configuration_of_the_administrators_stays_beside_a_given_one() {
    let site = Site::with_containerd();
    let config = site.root().join("etc/boathook/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let own = "[class.a]\nreplicas = 9\n";
    fs::write(&config, own).unwrap();
    let said = install_with(&site, "[class.a]\nreplicas = 2\n");
    assert!(said.contains("remove the file to use it"), "{said}");
    assert_eq!(fs::read_to_string(&config).unwrap(), own);
    site.uninstall();
    assert_eq!(fs::read_to_string(&config).unwrap(), own);
}

/// An installation that is killed between its record and the file goes on.
#[test]
fn a_given_configuration_is_written_after_a_run_that_was_killed() {
    let site = Site::with_containerd();
    let config = site.root().join("etc/boathook/config.toml");
    let (first, second) = ("[class.a]\nreplicas = 2\n", "[class.a]\nreplicas = 3\n");
    install_with(&site, first);
    install_with(&site, second);
    fs::write(&config, first).unwrap();
    install_with(&site, "[class.a]\nreplicas = 4\n");
    assert_eq!(
        fs::read_to_string(&config).unwrap(),
        "[class.a]\nreplicas = 4\n"
    );
}

#[test]
fn a_given_configuration_that_the_hook_would_refuse_is_not_installed() {
    let site = Site::with_containerd();
    let file = site.release().join("config.toml");
    fs::write(&file, "replicas = 2\n").unwrap();
    let output = site.run(&[
        "install",
        "--engine",
        "none",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert!(complaint(&output).contains("config.toml:1"), "{output:?}");
    assert!(!site.root().join("opt/boathook").exists());
}
