//! Checks of the workflows in `.github` that need no connection to the service.

use std::fs;

use harness::manifests::{documents, repository};
use serde_json::Value;

/// Returns the workflows with their names.
fn workflows() -> Vec<(String, Value)> {
    let entries = fs::read_dir(repository(".github/workflows")).unwrap();
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let workflow = documents(&text).unwrap().remove(0);
        (path.display().to_string(), workflow)
    };
    entries.map(|e| read(e.unwrap().path())).collect()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap())
}

#[test]
fn rights_are_given_job_by_job() {
    for (name, workflow) in workflows() {
        let rights = workflow["permissions"].as_object().unwrap();
        assert_eq!(rights.len(), 1, "{name}");
        assert_eq!(rights["contents"], "read", "{name}");
        for job in workflow["jobs"].as_object().unwrap().values() {
            assert!(job["timeout-minutes"].is_u64(), "{name}");
        }
    }
}

#[test]
fn what_is_run_is_there() {
    let makefile = fs::read_to_string(repository("Makefile")).unwrap();
    for (name, workflow) in workflows() {
        let mut targets = 0;
        for step in steps(&workflow) {
            let run = step["run"].as_str().unwrap_or_default();
            for word in run.split_whitespace().filter(|w| w.starts_with("scripts/")) {
                assert!(repository(word).is_file(), "{name}: {word}");
            }
            let Some((_, called)) = run.split_once("make ") else {
                continue;
            };
            for target in called.split_whitespace() {
                let rule = format!("\n{target}: ");
                assert!(makefile.contains(&rule), "{name}: {target}");
                targets += 1;
            }
        }
        assert!(targets > 0, "{name}");
    }
}

/// A step that can read a secret can publish a release, so only one step may.
#[test]
fn one_step_has_a_secret() {
    let all = workflows();
    let steps = all.iter().flat_map(|(_, workflow)| steps(workflow));
    let with_secret = steps.filter(|step| step.to_string().contains("secrets."));
    let ids: Vec<_> = with_secret.map(|step| &step["id"]).collect();
    assert_eq!(ids, ["push"]);
}
