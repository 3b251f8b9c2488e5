//! The workflows in `.github`, as far as they can be checked without their service.

use std::fs;

use serde_json::Value;

use crate::manifest::{documents, repository};

/// The workflows, by name.
fn workflows() -> Vec<(String, Value)> {
    let entries = fs::read_dir(repository(".github/workflows")).unwrap();
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.display().to_string(), documents(&text).remove(0))
    };
    entries.map(|e| read(e.unwrap().path())).collect()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap())
}

#[test]
fn rights_are_given_job_by_job() {
    assert_eq!(workflows().len(), 2);
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
            assert_ne!(
                step["run"].is_string(),
                step["uses"].is_string(),
                "{name}: {step}"
            );
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

/// The archives and the image of both architectures have an attestation of where they
/// were built, and only the step that pushes the image has a secret.
#[test]
fn a_release_is_attested_and_one_step_has_a_secret() {
    let text = fs::read_to_string(repository(".github/workflows/release.yml")).unwrap();
    let workflow = documents(&text).remove(0);
    let jobs = workflow["jobs"].as_object().unwrap();
    let attested = |job: &str| {
        assert_eq!(jobs[job]["permissions"]["attestations"], "write", "{job}");
        assert_eq!(jobs[job]["permissions"]["id-token"], "write", "{job}");
        let steps = jobs[job]["steps"].as_array().unwrap().iter();
        let uses = |step: &&Value| {
            let action = step["uses"].as_str().unwrap_or_default();
            action.starts_with("actions/attest-build-provenance@")
        };
        steps
            .filter(uses)
            .map(|step| step["with"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        attested("publish")[0]["subject-checksums"],
        "release/SHA256SUMS"
    );
    let images = attested("image");
    let digests = images
        .iter()
        .map(|image| image["subject-digest"].as_str().unwrap());
    let wanted = [
        "${{ steps.push.outputs.digest }}",
        "${{ steps.push.outputs.digest-cluster }}",
    ];
    assert_eq!(digests.collect::<Vec<_>>(), wanted);
    let with_secret: Vec<&Value> = steps(&workflow)
        .filter(|step| step.to_string().contains("secrets."))
        .collect();
    let [push] = with_secret.as_slice() else {
        panic!("{with_secret:?}");
    };
    assert_eq!(push["id"], "push");
    let run = push["run"].as_str().unwrap();
    assert!(
        run.contains("skopeo copy --all --digestfile digest"),
        "{run}"
    );
    // What is pushed is what `make dist` makes, by default for both.
    let dist = fs::read_to_string(repository("scripts/dist")).unwrap();
    assert!(dist.contains("${ARCHES:-amd64 arm64}"));
}
