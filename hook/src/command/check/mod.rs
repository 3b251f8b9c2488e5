//! Implements `boathook check`, which examines the prerequisites of this host and says what to fix.

mod cdi_services;
mod classes;
mod delivery;
mod kernel;
mod outdated;
mod toolkit;
mod versions;

use std::io;
use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::name::ClassName;
use runtime_config::{Engine, OCI_RUNTIME_NAMES, program_directories};

use super::finding::{Finding, Verdict, exit_code, print_table};
use super::{CommandError, missing_follower, print_json};
use crate::exit::ExitCode;

/// Runs all checks, and prints their findings. `names` limits the checks of classes.
pub(super) fn run(
    names: &[ClassName],
    root: Option<PathBuf>,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut findings = kernel::check_kernel();
    let directories = InstalledDirectories::find(&config.host_root)?;
    findings.extend(versions::check_versions(&config.host_root, &directories));
    findings.extend(check_plugin_config(config, &directories));
    findings.extend(check_engines(&config.host_root));
    findings.extend(check_runtime(config));
    findings.extend(delivery::check_delivery(config, &directories));
    findings.extend(toolkit::check_toolkits(config, &directories));
    findings.extend(cdi_services::check_cdi_services(config));
    findings.extend(classes::check_classes(names, config)?);
    findings.extend(outdated::check_containers(names, root, config));
    findings.extend(missing_follower::check_follower(config));
    if as_json {
        print_json(&serde_json::json!({ "findings": findings }))?;
    } else {
        print_table(&mut io::stdout().lock(), &findings)?;
    }
    Ok(exit_code(&findings))
}

fn check_engines(host_root: &Path) -> Vec<Finding> {
    let programs = Engine::ALL
        .iter()
        .flat_map(|engine| engine.properties().programs);
    let findings: Vec<Finding> = programs
        .chain(&OCI_RUNTIME_NAMES)
        .filter_map(|program| {
            let paths = program_directories()
                .map(|dir| host_root.join(dir.trim_start_matches('/')).join(program));
            let path = paths.into_iter().find(|path| path.is_file())?;
            let text = path.display().to_string();
            Some(Finding::new(Verdict::Ok, format!("engine {program}"), text))
        })
        .collect();
    if findings.is_empty() {
        let text = "none found in the usual directories; no engine will call the hook";
        let finding = Finding::new(Verdict::Warning, "engines", text);
        return vec![
            finding.with_fix("run this on the host, or set host_root in the configuration"),
        ];
    }
    findings
}

/// Returns a finding if `boathook-runtime` cannot find a runtime to execute: the configured program
/// does not exist, or no runtime is installed.
fn check_runtime(config: &Config) -> Option<Finding> {
    let to_host_path = |path: &Path| {
        config
            .host_root
            .join(path.strip_prefix("/").unwrap_or(path))
    };
    if let Some(path) = &config.runtime.path {
        let text = format!("{}, of [runtime] path, is no program", path.display());
        let finding = Finding::new(Verdict::Error, "runtime", text);
        let fix = "name runc, crun or youki by their absolute path, or remove the key";
        return (!to_host_path(path).is_file()).then(|| finding.with_fix(fix));
    }
    let mut programs = OCI_RUNTIME_NAMES.iter().flat_map(|name| {
        program_directories().map(move |directory| Path::new(directory).join(name))
    });
    let is_installed = programs.any(|path| to_host_path(&path).is_file());
    let text = format!(
        "none of {} in the usual directories",
        OCI_RUNTIME_NAMES.join(", ")
    );
    let finding = Finding::new(Verdict::Warning, "runtime", text);
    (!is_installed)
        .then(|| finding.with_fix("install one, or name it: [runtime] path in config.toml"))
}

/// Checks that the hook uses the same configuration as the cluster's plugin. The installation
/// keeps a copy of the plugin's configuration.
fn check_plugin_config(config: &Config, directories: &InstalledDirectories) -> Option<Finding> {
    let (copy_path, used_path) = (
        directories.installed_config_path(),
        directories.config_path(),
    );
    let copy_path = config
        .host_root
        .join(copy_path.strip_prefix("/").unwrap_or(&copy_path));
    let used_config = used_path.display();
    if !copy_path.exists() {
        return None;
    }
    let finding = |verdict, text: String| Finding::new(verdict, "configuration", text);
    // `host_root` may differ, because the plugin sees the host below another directory.
    let plugin_config = Config::load(Some(&copy_path)).map(|plugin_config| Config {
        host_root: config.host_root.clone(),
        ..plugin_config
    });
    Some(match plugin_config {
        Ok(plugin_config) if plugin_config == *config => {
            finding(Verdict::Ok, "that of the cluster".into())
        }
        Ok(_) => finding(
            Verdict::Warning,
            format!(
                "{used_config} differs from the cluster's configuration, which the plugin uses"
            ),
        )
        .with_fix(format!(
            "make the change in the ConfigMap boathook-plugin, remove {used_config}, and \
             restart the plugin's pod on this node"
        )),
        Err(error) => finding(Verdict::Warning, crate::log::format_error_chain(&error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_not_there_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let verdict = |text: &str| {
            let config = Config {
                host_root: host.path().into(),
                ..Config::parse(Path::new("config.toml"), text).unwrap()
            };
            check_runtime(&config).map(|finding| finding.verdict)
        };
        let runtime_toml = "[runtime]\npath = \"/opt/crun\"\n";
        assert_eq!(verdict(""), Some(Verdict::Warning));
        assert_eq!(verdict(runtime_toml), Some(Verdict::Error));
        for program in ["usr/sbin/runc", "opt/crun"] {
            let path = host.path().join(program);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(verdict(""), None);
        assert_eq!(verdict(runtime_toml), None);
    }

    #[test]
    fn a_configuration_other_than_the_clusters_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let parse_config = |text: &str| Config {
            host_root: host.path().into(),
            ..Config::parse(Path::new("config.toml"), text).unwrap()
        };
        let replicas = |count: u16| format!("[class.a]\nreplicas = {count}\n");
        let directories = InstalledDirectories::default();
        let check = |count| check_plugin_config(&parse_config(&replicas(count)), &directories);
        assert!(check(2).is_none());
        let given = host.path().join("opt/boathook/state/config.toml");
        std::fs::create_dir_all(given.parent().unwrap()).unwrap();
        std::fs::write(&given, replicas(2)).unwrap();
        for (count, verdict) in [(2, Verdict::Ok), (3, Verdict::Warning)] {
            let finding = check(count).unwrap();
            assert_eq!(finding.verdict, verdict, "{count}");
        }
    }
}
