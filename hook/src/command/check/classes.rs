//! Which classes are there, and what the host has of them.

use device_class::class::Claims;
use device_class::config::Config;
use device_class::discover::{self, Inventory};
use device_class::load::{self, ClassSource};
use device_class::strict_toml::FileError;

use super::{Finding, Verdict};
use crate::planner;

pub(super) fn check(config: &Config) -> Vec<Finding> {
    let error = |text: String| vec![Finding::new(Verdict::Error, "classes", text)];
    let host = match planner::open_host(config) {
        Ok(host) => host,
        Err(problem) => return error(problem.to_string()),
    };
    let sources = match load::each_source(&config.classes) {
        Ok(sources) => sources,
        Err(problem) => return error(problem.to_string()),
    };
    if sources.is_empty() {
        let directories: Vec<_> = config
            .classes
            .iter()
            .map(|d| d.display().to_string())
            .collect();
        let text = format!("no class file in {}", directories.join(" or "));
        return vec![Finding::new(Verdict::Warning, "classes", text)];
    }
    let mut claims = Claims::default();
    let one = |source: Result<ClassSource, FileError>| {
        let subject = match &source {
            Ok(source) => format!("class {}", source.name),
            Err(_) => "classes".to_owned(),
        };
        let error = |text| vec![Finding::new(Verdict::Error, subject.clone(), text)];
        let class = match source.and_then(|source| config.class(&source)) {
            Ok(class) => class,
            Err(problem) => return error(problem.to_string()),
        };
        if let Err(claimed) = claims.env(&class) {
            return error(claimed.to_string());
        }
        found(subject, &discover::devices(&class, &host))
    };
    sources.into_iter().flat_map(one).collect()
}

fn found(subject: String, inventory: &Inventory) -> Vec<Finding> {
    let warning = |text: &String| Finding::new(Verdict::Warning, subject.clone(), text.clone());
    let mut findings: Vec<Finding> = inventory.warnings.iter().map(warning).collect();
    let devices = &inventory.devices;
    let healthy = devices
        .iter()
        .filter(|device| device.health.is_healthy())
        .count();
    let text = match devices.len() {
        0 => "no device on this host".to_owned(),
        all => format!("{healthy} of {all} devices healthy"),
    };
    let verdict = if healthy == devices.len() {
        Verdict::Ok
    } else {
        Verdict::Warning
    };
    findings.push(Finding::new(verdict, subject, text));
    findings
}
