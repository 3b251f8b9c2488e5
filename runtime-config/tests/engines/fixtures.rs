//! Every engine's files before and after, as trees under
//! `testdata/ENGINE/CASE/{before,after}`.
//!
//! A case may have a file `flags` (`set-default`, `base-spec`,
//! and `more-names` for a runtime that is also named `vendor`). A case with a file `error` must be
//! refused with a message that contains the file's text, and must not change the host.
//! `UPDATE_FIXTURES=1 cargo test` rewrites the `after` trees, which are then reviewed as a diff.

use std::fs;
use std::path::{Path, PathBuf};

use runtime_config::{Engine, Error, HostRoot, InstallOptions, InstallationRecord, Plan};

use crate::{apply, options, tree};

/// A shortened output of `ctr oci spec`.
const BASE_SPEC: &str = r#"{"ociVersion": "1.2.0", "process": {"cwd": "/"}}"#;

struct Case {
    name: String,
    dir: PathBuf,
    engine: Engine,
    options: InstallOptions,
}

fn cases() -> Vec<Case> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut cases = Vec::new();
    for engine in fs::read_dir(&data).unwrap().map(|e| e.unwrap()) {
        for case in fs::read_dir(engine.path()).unwrap().map(|e| e.unwrap()) {
            let flags = fs::read_to_string(case.path().join("flags")).unwrap_or_default();
            let engine: Engine = engine.file_name().to_str().unwrap().parse().unwrap();
            let options = InstallOptions {
                set_default: flags.contains("set-default"),
                base_spec: flags.contains("base-spec").then(|| BASE_SPEC.to_owned()),
                additional_names: flags
                    .contains("more-names")
                    .then(|| "vendor".to_owned())
                    .into_iter()
                    .collect(),
                ..options()
            };
            cases.push(Case {
                name: format!("{engine}/{}", case.file_name().to_string_lossy()),
                dir: case.path(),
                engine,
                options,
            });
        }
    }
    for engine in Engine::ALL {
        let has_case = cases.iter().any(|case| case.engine == engine);
        assert!(has_case, "no case in testdata/{engine}");
    }
    assert!(cases.len() > 50, "only {} cases found", cases.len());
    cases
}

impl Case {
    fn refusal(&self) -> Option<String> {
        fs::read_to_string(self.dir.join("error")).ok()
    }

    fn host(&self) -> (tempfile::TempDir, HostRoot) {
        let dir = tempfile::tempdir().unwrap();
        tree::copy(&self.dir.join("before"), dir.path());
        let host = HostRoot::open(dir.path()).unwrap();
        (dir, host)
    }

    fn plan(&self, host: &HostRoot, record: Option<&InstallationRecord>) -> Result<Plan, Error> {
        let now = self.engine.read_snapshot(host, record)?;
        self.engine.plan_install(&now, record, &self.options)
    }

    fn undo(&self, host: &HostRoot, record: Option<&InstallationRecord>) {
        let now = self.engine.read_snapshot(host, record).unwrap();
        apply(host, &self.engine.plan_undo(&now, record).changes).unwrap();
    }
}

fn accepted() -> impl Iterator<Item = Case> {
    cases().into_iter().filter(|case| case.refusal().is_none())
}

#[test]
fn installing_gives_the_after_tree() {
    for case in accepted() {
        let (dir, host) = case.host();
        let plan = case.plan(&host, None).expect(&case.name);
        apply(&host, &plan.changes).unwrap();
        let after = case.dir.join("after");
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            let _ = fs::remove_dir_all(&after);
            tree::copy(dir.path(), &after);
        }
        let (made, wanted) = (tree::files(dir.path()), tree::files(&after));
        assert_eq!(made, wanted, "{}", case.name);
    }
}

#[test]
fn installing_twice_changes_nothing() {
    for case in accepted() {
        let (_dir, host) = case.host();
        let first = case.plan(&host, None).unwrap();
        assert!(!first.is_empty(), "{}", case.name);
        apply(&host, &first.changes).unwrap();
        let second = case.plan(&host, first.record.as_ref()).unwrap();
        assert!(second.is_empty(), "{}:\n{second}", case.name);
        assert_eq!(second.record, first.record, "{}", case.name);
    }
}

#[test]
fn undoing_gives_the_before_tree_to_the_byte() {
    for case in accepted() {
        let (dir, host) = case.host();
        let before = tree::snapshot(dir.path());
        let plan = case.plan(&host, None).unwrap();
        apply(&host, &plan.changes).unwrap();
        case.undo(&host, plan.record.as_ref());
        assert_eq!(tree::snapshot(dir.path()), before, "{}", case.name);
    }
}

#[test]
fn undoing_after_a_second_version_gives_the_first_before_tree() {
    for mut case in accepted() {
        let name = case.name.clone();
        let (dir, host) = case.host();
        let before = tree::snapshot(dir.path());
        let first = case.plan(&host, None).unwrap();
        apply(&host, &first.changes).unwrap();
        case.options.runtime_path = "/opt/elsewhere/bin/boathook-runtime".into();
        let second = case.plan(&host, first.record.as_ref()).unwrap();
        // A record is on disk before the first change. A run that was killed between the two is
        // undone by the new record, although the files are still the old ones.
        case.undo(&host, second.record.as_ref());
        assert_eq!(tree::snapshot(dir.path()), before, "{name}: not applied");
        apply(&host, &first.changes).unwrap();
        apply(&host, &second.changes).unwrap();
        case.undo(&host, second.record.as_ref());
        assert_eq!(tree::snapshot(dir.path()), before, "{name}: applied");
    }
}

#[test]
fn undoing_without_a_record_removes_all_of_boathooks_parts() {
    for case in accepted() {
        let (dir, host) = case.host();
        let before = tree::files(dir.path());
        let plan = case.plan(&host, None).unwrap();
        apply(&host, &plan.changes).unwrap();
        case.undo(&host, None);
        // JSON has no comments for marks, so an undo without a record is not exact (see
        // `docker::strip`).
        if case.engine == Engine::Docker {
            let text = fs::read_to_string(dir.path().join("etc/docker/daemon.json")).unwrap();
            assert!(!text.contains("boathook"), "{}: {text}", case.name);
        } else {
            assert_eq!(tree::files(dir.path()), before, "{}", case.name);
        }
    }
}

#[test]
fn what_the_owner_adds_later_survives_the_undoing() {
    for case in accepted().filter(|case| case.engine != Engine::Docker) {
        let (dir, host) = case.host();
        let plan = case.plan(&host, None).unwrap();
        apply(&host, &plan.changes).unwrap();
        for (path, before) in tree::files(&case.dir.join("before")) {
            let file = dir.path().join(&path);
            let now = fs::read_to_string(&file).unwrap();
            let comment = "# written later\n";
            fs::write(&file, now + comment).unwrap();
            let undone = case
                .engine
                .read_snapshot(&host, plan.record.as_ref())
                .unwrap();
            let plan = case.engine.plan_undo(&undone, plan.record.as_ref());
            apply(&host, &plan.changes).unwrap();
            let unended = !before.is_empty() && !before.ends_with('\n');
            let expected = before + if unended { "\n" } else { "" } + comment;
            let left = fs::read_to_string(&file).unwrap();
            assert_eq!(left, expected, "{}: {path:?}", case.name);
        }
    }
}

#[test]
fn what_is_refused_is_left_alone() {
    for case in cases() {
        let Some(expected) = case.refusal() else {
            continue;
        };
        let (dir, host) = case.host();
        let before = tree::snapshot(dir.path());
        let message = case.plan(&host, None).expect_err(&case.name).to_string();
        let said = expected.trim();
        assert!(message.contains(said), "{}: {message}", case.name);
        assert_eq!(tree::snapshot(dir.path()), before, "{}", case.name);
    }
}
