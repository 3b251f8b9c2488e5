//! The simulator.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use cluster::scheduler::simulate::{Outcome, Scenario, chart, simulate};

/// Shares of devices, with slightly more pods than fit.
const SHARES: &str = include_str!("../../examples/small.toml");

/// The results, simulated once for all tests.
static OUTCOMES: LazyLock<Vec<Outcome>> =
    LazyLock::new(|| simulate(&Scenario::parse(SHARES).unwrap()));

fn by_name<'a>(outcomes: &'a [Outcome], name: &str) -> &'a Outcome {
    let mut outcomes = outcomes.iter();
    outcomes
        .find(|outcome| outcome.strategy.name == name)
        .unwrap()
}

#[test]
fn the_extender_strands_less_and_fewer_pods_are_refused() {
    let outcomes = &*OUTCOMES;
    let default = by_name(outcomes, "default");
    let packed = by_name(outcomes, "MostAllocated");
    let device = by_name(outcomes, "both, device");
    assert!(device.stranded < default.stranded, "{outcomes:#?}");
    // A kubelet refuses a pod that fits the sum of units but not the devices.
    assert!(
        packed.refused > 50 && device.refused * 5 < packed.refused,
        "{outcomes:#?}"
    );
    assert!(
        device.wrong.unwrap() > 0.0 && device.wrong.unwrap() < 20.0,
        "{outcomes:#?}"
    );
    assert_eq!(packed.wrong, None);
    for outcome in outcomes {
        assert!(
            outcome.placed > 400 && outcome.placed + outcome.waiting <= 800,
            "{outcome:?}"
        );
    }
}

#[test]
fn without_delays_and_restarts_nothing_is_guessed_wrongly() {
    let exact = SHARES
        .replacen("seed = 7", "view_delay = 0.0\nend_delay = 0.0\nseed = 7", 1)
        .replace("restart_interval = 600", "restart_interval = 0");
    let outcomes = simulate(&Scenario::parse(&exact).unwrap());
    for outcome in outcomes.iter().filter(|outcome| outcome.wrong.is_some()) {
        assert_eq!(
            (outcome.wrong, outcome.refused),
            (Some(0.0), 0),
            "{outcome:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let short = SHARES.replace("pods = 800", "pods = 100");
    let scenario = Scenario::parse(&short).unwrap();
    let first = simulate(&scenario);
    assert_eq!(first, simulate(&scenario));
    let other = Scenario::parse(&short.replace("seed = 7", "seed = 8")).unwrap();
    assert_ne!(first, simulate(&other));
}

#[test]
fn the_chart_has_a_bar_for_each_number() {
    let outcomes = &*OUTCOMES;
    let svg = chart(outcomes);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    // And one bar for the background.
    assert_eq!(svg.matches("<rect ").count(), 3 * outcomes.len() + 1);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn the_documented_table_is_what_the_program_prints() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut program = Command::new(env!("CARGO_BIN_EXE_boathook-scheduler"));
    let output = program
        .arg("simulate")
        .arg(root.join("examples/small.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let page = std::fs::read_to_string(root.parent().unwrap().join("docs/scheduling.md")).unwrap();
    assert!(page.contains(printed.trim_end()), "{printed}");
}

#[test]
fn the_example_scenarios_can_be_read() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples");
    for name in ["small.toml", "whole-devices.toml"] {
        Scenario::read(&examples.join(name)).unwrap();
    }
}

#[test]
fn impossible_scenarios_are_refused() {
    for (from, to, reason) in [
        ("count = 12", "count = 0", "0 nodes"),
        ("pods = 800", "pods = 0", "0 pods"),
        ("devices = 8", "devices = 0", "devices from 1 to 256"),
        (
            "units_per_device = 8",
            "units_per_device = 0",
            "units_per_device from 1",
        ),
        ("interval = 1.0", "interval = -1.0", "-1 s"),
        ("interval = 1.0", "interval = nan", "NaN s"),
        ("weight = 5", "weight = 18446744073709551615", "weights"),
        ("units = 5", "units = 0", "units from 1"),
        ("seed = 7", "seed = 7\nsede = 7", "unknown field"),
    ] {
        let text = SHARES.replacen(from, to, 1);
        assert_ne!(text, SHARES, "{from}");
        let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
        assert!(error.contains(reason), "{to}: {error}");
    }
}
