//! `boathook-plugin check-files`: whether the host has the libraries and files that
//! containers with devices of each class get.
//!
//! The plugin's container has the kubelet's directory, as root, and of the host only what
//! discovery reads. This command runs beside it with the host's whole tree, read-only, as
//! a user without any right, and reports to it by a file.

mod denied;
mod report;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::config::Config;
use device_class::discover;
use device_class::host::RealHost;
use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use crate::catalog::{Classes, wait_for_scan};
use crate::signals::EndSignals;
use denied::NoticeDenied;
pub(crate) use report::FileReport;

/// The options of the command.
#[derive(Debug, Clone)]
pub struct FileCheckOptions {
    /// The configuration; without it the default file, which may be absent.
    pub config: Option<PathBuf>,
    /// Where the host's root is mounted; `None`: where the configuration has it.
    pub host_root: Option<PathBuf>,
    /// The file that is written.
    pub report: PathBuf,
    /// The time between two checks.
    pub interval: Duration,
}

/// Why the command cannot run.
#[derive(Debug, thiserror::Error)]
pub enum FileCheckError {
    /// The configuration cannot be used.
    #[error("configuration")]
    Config(#[from] FileError),
    /// A signal handler cannot be installed.
    #[error("cannot install a signal handler")]
    Signals(#[source] std::io::Error),
}

/// Checks and reports until a signal that ends processes.
///
/// # Errors
/// The options cannot be used.
pub async fn check_files(options: FileCheckOptions) -> Result<(), FileCheckError> {
    let mut config = Config::load(options.config.as_deref())?;
    if let Some(root) = &options.host_root {
        config = config.mounted_at(root);
    }
    let mut signals = EndSignals::new().map_err(FileCheckError::Signals)?;
    tokio::select! {
        name = signals.next() => {
            tracing::info!("received {name}, exiting");
            Ok(())
        }
        never = repeat(&config, &options.report, options.interval) => match never {},
    }
}

/// The result of one check.
#[derive(Debug, Default, PartialEq, Eq)]
struct Checked {
    report: FileReport,
    /// The classes that this user cannot check, with the first path.
    denied: BTreeMap<ClassName, PathBuf>,
}

async fn repeat(config: &Config, report: &Path, interval: Duration) -> Infallible {
    let mut logged = Vec::new();
    loop {
        // A driver may block reads of its files.
        let config = config.clone();
        let checking = tokio::task::spawn_blocking(move || check(&config));
        let problems = match wait_for_scan(checking).await {
            Err(error) => vec![format!("check failed: {error}")],
            Ok(Err(error)) => vec![format!("keeping the previous report: {error}")],
            Ok(Ok(checked)) => {
                let mut problems: Vec<String> = checked
                    .denied
                    .iter()
                    .map(|(class, path)| {
                        let path = path.display();
                        format!("{class}: not checked, {path} cannot be read by this user")
                    })
                    .collect();
                if let Err(error) = checked.report.write(report) {
                    problems.push(format!("cannot write {}: {error}", report.display()));
                }
                problems
            }
        };
        for problem in problems.iter().filter(|problem| !logged.contains(*problem)) {
            tracing::warn!("{problem}");
        }
        logged = problems;
        tokio::time::sleep(interval).await;
    }
}

fn check(config: &Config) -> Result<Checked, String> {
    let classes = Classes::load(config).map_err(|error| error.to_string())?;
    let root = &config.host_root;
    let host = RealHost::open(root)
        .map_err(|error| format!("cannot open host root {}: {error}", root.display()))?;
    let mut checked = Checked::default();
    // Errors of class files are the plugin's to log.
    for class in &classes.usable {
        let host = NoticeDenied::new(&host);
        let missing = discover::missing(class, config, &host);
        match (host.denied(), missing) {
            (Some(path), _) => {
                checked.denied.insert(class.name.clone(), path);
            }
            (None, Some(reason)) => checked.report.add(&class.name, reason),
            (None, None) => {}
        }
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CLASS: &str = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                         device = { id = 'x-{index}' }\ndiscover = [{ count = 1 }]\n\
                         edits = [{ files = ['/opt/x/firmware'] }]\n";

    /// A host's tree with the class.
    fn host() -> (tempfile::TempDir, Config) {
        let root = tempfile::tempdir().unwrap();
        let classes = root.path().join("etc/boathook/classes.d");
        fs::create_dir_all(&classes).unwrap();
        fs::write(classes.join("x.toml"), CLASS).unwrap();
        let config = Config::default().mounted_at(root.path());
        (root, config)
    }

    #[test]
    fn what_is_missing_is_reported_until_it_is_there() {
        let (root, config) = host();
        let name: ClassName = "x".to_owned().try_into().unwrap();
        let missing = || {
            let checked = check(&config).unwrap();
            checked.report.missing(&name).map(str::to_owned)
        };
        let reason = missing().unwrap();
        assert!(reason.contains("/opt/x/firmware"), "{reason}");
        fs::create_dir_all(root.path().join("opt/x")).unwrap();
        fs::write(root.path().join("opt/x/firmware"), "").unwrap();
        assert_eq!(missing(), None);
    }
}
