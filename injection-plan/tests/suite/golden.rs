//! Compares the devices and plans of the shipped classes on recorded hosts with golden files.
//!
//! A directory of `testdata` with a `host.txt` is a case. It belongs to the
//! class whose name its path begins with; generations of hardware that differ
//! are directories below. `plan.txt` says what is asked, each time in a line
//! `$ VARIABLE=value ...`, and what the plan is.
//!
//! `UPDATE_EXPECT=1 cargo test -p boathook-injection-plan` regenerates the golden files;
//! the difference is then read like any other change.

use std::path::PathBuf;

use device_class::discover;
use device_class::host::{HostRecorder, RecordedHost};
use device_class::{DeviceClass, HostView};
use injection_plan::request::Request;

use crate::planning::{asker, directory, plan, recordings, shipped, with_causes};

/// Returns the directories with recorded hosts of a class.
fn cases(class: &DeviceClass) -> Vec<PathBuf> {
    recordings(directory("testdata").join(class.name.as_str()))
}

pub(crate) fn plan_text(class: &DeviceClass, host: &dyn HostView, env: &[(&str, &str)]) -> String {
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let request = match Request::find(class, &env.into(), |_| None) {
        Ok(Some(request)) => request,
        Ok(None) => return "no request\n".into(),
        Err(refused) => return format!("refused: {}\n", with_causes(refused)),
    };
    plan(class, &request, host, &asker()).map_or_else(
        |error| format!("refused: {error}\n"),
        |plan| plan.to_string(),
    )
}

/// Returns the requests of a golden plan: its lines `$ NAME=value NAME=value`.
fn requests(plan: &str) -> Vec<Vec<(&str, &str)>> {
    let lines = plan.lines().filter_map(|line| line.strip_prefix("$ "));
    lines
        .map(|line| line.split(' ').map(pair).collect())
        .collect()
}

pub(crate) fn pair(text: &str) -> (&str, &str) {
    text.split_once('=')
        .unwrap_or_else(|| panic!("`{text}` is not NAME=value"))
}

#[test]
fn every_class_finds_and_plans_what_its_golden_files_say() {
    for class in shipped() {
        let cases = cases(&class);
        assert!(!cases.is_empty(), "{} has no recorded host", class.name);
        for case in cases {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host =
                RecordedHost::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", case.display()));
            let inventory = discover::find_devices(&class, &host);
            assert!(
                !inventory.devices.is_empty(),
                "{}: {:?}",
                case.display(),
                inventory.warnings
            );
            expect_test::expect_file![case.join("inventory.txt")].assert_eq(&inventory.to_string());
            let golden = std::fs::read_to_string(case.join("plan.txt")).unwrap_or_default();
            let asked = requests(&golden);
            assert!(
                !asked.is_empty(),
                "{}/plan.txt asks for nothing",
                case.display()
            );
            let plans = asked.iter().map(|env| {
                let pairs: Vec<_> = env
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("$ {}\n{}", pairs.join(" "), plan_text(&class, &host, env))
            });
            let plans = plans.collect::<Vec<_>>().join("\n");
            expect_test::expect_file![case.join("plan.txt")].assert_eq(&plans);
        }
    }
}

/// A recording of a recording, made by looking at it as discovery and planning
/// do, has the same devices and gives the same plans.
#[test]
fn what_is_looked_at_can_be_recorded() {
    for class in shipped() {
        for case in cases(&class) {
            let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
            let host = RecordedHost::parse(&text).unwrap();
            let golden = std::fs::read_to_string(case.join("plan.txt")).unwrap();
            let recording = HostRecorder::new(&host);
            let look = |view: &dyn HostView| {
                let asked = requests(&golden);
                let plans = asked.iter().map(|env| plan_text(&class, view, env));
                plans.collect::<String>() + &discover::find_devices(&class, view).to_string()
            };
            let first = look(&recording);
            let written = recording.to_string();
            let again =
                RecordedHost::parse(&written).unwrap_or_else(|e| panic!("{}: {e}", case.display()));
            assert_eq!(look(&again), first, "{}\n{written}", case.display());
        }
    }
}
