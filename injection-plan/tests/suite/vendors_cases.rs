//! `tests/vendors`: what the vendors' stacks do for a host and a request, as their sources
//! say, and Boathook as well; and the class of docs/migration.md in the place of a generic
//! plugin.
//!
//! `# SOURCE`, then for each case `$ HOST VARIABLES` (HOST of device-class/testdata, its
//! first part the class) or `$ HOST list`. Below: `env` one more variable, whose value may
//! have blanks; `with` a line more of the host, `replace A => B` in it; `config` a line in
//! the class's table of config.toml; `+` what is in the plan or the list, `-` what is not,
//! `= N` how many devices.

use std::path::Path;

use device_class::config::Config;
use device_class::discover;
use device_class::host::RecordedHost;

use crate::golden::{pair, plan_text};
use crate::planning::{directory, parse, shipped_class};

/// Returns the faults of a case. A case is its first line and the lines below.
fn faults(case: &str) -> Vec<String> {
    let mut lines = case.lines();
    let (path, asked) = lines.next().unwrap().split_once(' ').unwrap();
    let name = path.split('/').next().unwrap();
    let file = directory("testdata").join(path).join("host.txt");
    let mut host = std::fs::read_to_string(file).unwrap();
    let mut config = format!("[class.{name}]\n");
    let mut env: Vec<_> = match asked {
        "list" => Vec::new(),
        asked => asked.split(' ').map(pair).collect(),
    };
    let mut wanted = Vec::new();
    for line in lines {
        let (what, text) = line.split_once(' ').unwrap();
        match (what, text.split_once(" => ")) {
            ("env", _) => env.push(pair(text)),
            ("with", _) => host.push_str(&format!("{text}\n")),
            ("config", _) => config.push_str(&format!("{text}\n")),
            ("replace", Some((old, new))) => {
                assert!(host.contains(old), "{case}");
                host = host.replace(old, new);
            }
            _ => wanted.push((what, text)),
        }
    }
    let host = RecordedHost::parse(&host).unwrap_or_else(|error| panic!("{case}: {error}"));
    let config = Config::parse(Path::new("config.toml"), &config);
    let config = config.unwrap_or_else(|error| panic!("{case}: {error}"));
    let class = config.with_settings(shipped_class(name), Path::new("class.toml"));
    let class = class.unwrap_or_else(|error| panic!("{case}: {error}"));
    let said = if asked == "list" {
        discover::find_devices(&class, &host)
            .to_string()
            .replace("  ", " ")
    } else {
        let plan = plan_text(&class, &host, &env);
        let lines = plan.lines().filter(|line| !line.contains(" note "));
        // The request alone is no answer.
        let lines = lines.filter(|line| !line.contains("requested by"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let is_right = |what: &str, text: &str| match what {
        "+" => said.contains(text),
        "-" => !said.contains(text),
        "=" => said.contains(&format!(": {text} of ")),
        _ => panic!("{case}"),
    };
    let wrong = wanted.iter().filter(|(what, text)| !is_right(what, text));
    wrong
        .map(|(what, text)| format!("{case}lacks: {what} {text}\n{said}\n"))
        .collect()
}

#[test]
fn the_shipped_classes_do_what_the_vendors_stacks_do() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vendors")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text: String = lines
            .filter(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect();
        for case in text.split("$ ").skip(1) {
            count += 1;
            wrong.extend(faults(case));
        }
    }
    assert!(count > 200, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// docs/migration.md, "Generic plugins", and the name that the other plugin gives a node.
#[test]
fn a_class_takes_the_place_of_a_generic_plugin() {
    let docs = std::fs::read_to_string(directory("../docs/migration.md")).unwrap();
    let (_, section) = docs.split_once("## Generic plugins").unwrap();
    let text = section.split("```toml\n").nth(1).unwrap();
    let text = text.split("```").next().unwrap();
    let host = RecordedHost::parse("char /dev/adc0 240:0\nchar /dev/adc3 240:3\n").unwrap();
    let class = parse("adc", text).unwrap();
    let plan = plan_text(&class, &host, &[("ADC_VISIBLE_DEVICES", "adc3::7")]);
    assert!(plan.contains("/dev/x/adc3 from /dev/adc3"), "{plan}");
    assert!(!plan.contains("adc0"), "{plan}");
    let smarter = "smarter-devices/adc{number}";
    assert!(section.contains(smarter));
    let class = parse("adc", &text.replace("squat.ai/adc", smarter)).unwrap();
    let listed = discover::find_devices(&class, &host).to_string();
    assert!(listed.contains("smarter-devices/adc3"), "{listed}");
}
