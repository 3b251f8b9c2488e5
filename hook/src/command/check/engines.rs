//! Which engines and runtimes the host has.

use std::path::Path;

use runtime_config::{Engine, RUNTIMES, program_directories};

use super::{Finding, Verdict};

pub(super) fn check(host_root: &Path) -> Vec<Finding> {
    let engines = Engine::ALL
        .iter()
        .flat_map(|engine| engine.facts().programs);
    let found: Vec<Finding> = engines
        .chain(&RUNTIMES)
        .filter_map(|program| {
            let paths = program_directories()
                .map(|dir| host_root.join(dir.trim_start_matches('/')).join(program));
            let path = paths.into_iter().find(|path| path.is_file())?;
            let text = path.display().to_string();
            Some(Finding::new(Verdict::Ok, format!("engine {program}"), text))
        })
        .collect();
    if found.is_empty() {
        let text = "none found in the usual directories; nobody will call the hook";
        return vec![Finding::new(Verdict::Warning, "engines", text)];
    }
    found
}
