//! Implements `boathook check`, which checks whether this host meets Boathook's requirements and
//! says what to fix.

mod cdi_services;
mod class_index;
mod classes;
mod delivery;
mod kernel;
mod missing_nodes;
mod outdated;
mod toolkit;
mod versions;

use std::io;
use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::name::ClassName;
use hook::exit::ExitCode;
use runtime_config::{Engine, OCI_RUNTIME_NAMES, program_directories};

use super::finding::{Finding, Severity, print_table, to_exit_code};
use super::{CommandError, missing_follower, print_json};

/// Implements `boathook check`: runs all checks, and prints their findings as a table or as JSON.
/// Checks only the classes `class_names`, or all classes if the list is empty.
pub(super) fn run(
    class_names: &[ClassName],
    state_root: Option<PathBuf>,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut findings = kernel::check_kernel();
    let directories = InstalledDirectories::find(&config.host_root)?;
    findings.extend(versions::check_versions(&config.host_root, &directories));
    findings.extend(class_index::check_class_index(
        &config.host_root,
        &directories,
    ));
    findings.extend(check_plugin_config(config, &directories));
    findings.extend(check_engines(&config.host_root));
    findings.extend(check_runtime(config));
    findings.extend(delivery::check_delivery(config, &directories));
    findings.extend(toolkit::check_toolkits(config, &directories));
    findings.extend(cdi_services::check_cdi_services(config));
    findings.extend(classes::check_classes(class_names, config)?);
    findings.extend(outdated::check_driver_files(
        class_names,
        state_root,
        config,
    ));
    findings.extend(missing_follower::check_follower(config));
    if as_json {
        print_json(&serde_json::json!({ "findings": findings }))?;
    } else {
        print_table(&mut io::stdout().lock(), &findings)?;
    }
    Ok(to_exit_code(&findings))
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
            Some(Finding::new(
                Severity::Ok,
                format!("engine {program}"),
                text,
            ))
        })
        .collect();
    if findings.is_empty() {
        let text = "none found in the usual directories; no engine will call the hook";
        let finding = Finding::new(Severity::Warning, "engines", text);
        return vec![
            finding.with_fix("run this on the host, or set host_root in the configuration"),
        ];
    }
    findings
}

/// Returns a finding if `boathook-runtime` has no OCI runtime to execute: the configured program
/// does not exist, or no runtime is installed.
fn check_runtime(config: &Config) -> Option<Finding> {
    let to_host_path = |runtime_path: &Path| {
        config
            .host_root
            .join(runtime_path.strip_prefix("/").unwrap_or(runtime_path))
    };
    if let Some(runtime_path) = &config.runtime.path {
        let text = format!(
            "{}, of [runtime] path, is no program",
            runtime_path.display()
        );
        let finding = Finding::new(Severity::Error, "runtime", text);
        let fix = "name runc, crun or youki by their absolute path, or remove the key";
        return (!to_host_path(runtime_path).is_file()).then(|| finding.with_fix(fix));
    }
    let mut programs = OCI_RUNTIME_NAMES.iter().flat_map(|name| {
        program_directories().map(move |directory| Path::new(directory).join(name))
    });
    let is_installed = programs.any(|runtime_path| to_host_path(&runtime_path).is_file());
    let text = format!(
        "none of {} in the usual directories",
        OCI_RUNTIME_NAMES.join(", ")
    );
    let finding = Finding::new(Severity::Warning, "runtime", text);
    (!is_installed)
        .then(|| finding.with_fix("install one, or name it: [runtime] path in config.toml"))
}

/// Compares the hook's configuration with the configuration of the cluster's plugin. The
/// installation on this host contains a copy of the plugin's configuration. Returns `None` if there
/// is no copy.
fn check_plugin_config(config: &Config, directories: &InstalledDirectories) -> Option<Finding> {
    let (plugin_config_path, hook_config_path) = (
        directories.installed_config_path(),
        directories.config_path(),
    );
    let plugin_config_path = config.host_root.join(
        plugin_config_path
            .strip_prefix("/")
            .unwrap_or(&plugin_config_path),
    );
    let shown_config_path = hook_config_path.display();
    if !plugin_config_path.exists() {
        return None;
    }
    let create_finding = |severity, text: String| Finding::new(severity, "configuration", text);
    // `host_root` is not compared, because the plugin sees the host's files in another directory.
    let plugin_config = Config::load(Some(&plugin_config_path)).map(|plugin_config| Config {
        host_root: config.host_root.clone(),
        ..plugin_config
    });
    Some(match plugin_config {
        Ok(plugin_config) if plugin_config == *config => {
            create_finding(Severity::Ok, "that of the cluster".into())
        }
        Ok(_) => create_finding(
            Severity::Warning,
            format!(
                "{shown_config_path} differs from the cluster's configuration, which the plugin uses"
            ),
        )
        .with_fix(format!(
            "make the change in the ConfigMap boathook-plugin, remove {shown_config_path}, and \
             restart the plugin's pod on this node"
        )),
        Err(error) => create_finding(Severity::Warning, hook::log::format_error_chain(&error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_not_there_is_reported() {
        let host = tempfile::tempdir().unwrap();
        let severity = |text: &str| {
            let config = Config {
                host_root: host.path().into(),
                ..Config::parse(Path::new("config.toml"), text).unwrap()
            };
            check_runtime(&config).map(|finding| finding.severity)
        };
        let runtime_toml = "[runtime]\npath = \"/opt/crun\"\n";
        assert_eq!(severity(""), Some(Severity::Warning));
        assert_eq!(severity(runtime_toml), Some(Severity::Error));
        for program in ["usr/sbin/runc", "opt/crun"] {
            let path = host.path().join(program);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(severity(""), None);
        assert_eq!(severity(runtime_toml), None);
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
        for (count, severity) in [(2, Severity::Ok), (3, Severity::Warning)] {
            let finding = check(count).unwrap();
            assert_eq!(finding.severity, severity, "{count}");
        }
    }
}
