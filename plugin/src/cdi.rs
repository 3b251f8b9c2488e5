//! Specifications of the Container Device Interface, updated when devices change.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_class::config::Config;
use device_class::host::RealHost;
use injection_plan::cdi::directory::{self, Change};
use injection_plan::cdi::{Form, Generator};
use tokio::sync::watch;

use crate::catalog::{Classes, Inventory};
use crate::metrics::Metrics;

/// The contents of a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CdiForm {
    /// Device nodes and the hook, which does the rest when a container starts
    Thin,
    /// Device nodes, mounts and variables, without a hook
    Plain,
}

/// How specifications are written.
#[derive(Debug, Clone)]
pub struct CdiOptions {
    /// The directory, from which engines read them.
    pub directory: PathBuf,
    /// Their contents.
    pub form: CdiForm,
    /// The hook, as a path on the host.
    pub hook: PathBuf,
}

/// Writes the specifications of the classes that the plugin advertises.
#[derive(Debug)]
pub(crate) struct CdiFiles {
    options: Arc<CdiOptions>,
    /// The host's root as engines see it.
    host_root: Arc<Path>,
    config: Arc<Config>,
    metrics: Metrics,
    /// The keys of problems that were logged, so that each is logged once.
    logged: BTreeSet<String>,
}

/// The result of a scan.
#[derive(Debug, Default)]
struct Written {
    changes: Vec<String>,
    /// Omitted devices, by a key that stays the same from scan to scan.
    problems: BTreeMap<String, Problem>,
}

#[derive(Debug)]
struct Problem {
    text: String,
    is_error: bool,
}

impl CdiFiles {
    pub(crate) fn new(
        options: CdiOptions,
        host_root: &Path,
        config: Config,
        metrics: Metrics,
    ) -> Self {
        CdiFiles {
            options: Arc::new(options),
            host_root: host_root.into(),
            config: Arc::new(config),
            metrics,
            logged: BTreeSet::new(),
        }
    }

    /// Writes what has changed whenever the devices change, and every `period`: a
    /// driver may have been replaced, or a file removed.
    pub(crate) async fn run(mut self, period: Duration, mut devices: watch::Receiver<Inventory>) {
        loop {
            self.update().await;
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                Ok(()) = devices.changed() => {}
            }
        }
    }

    /// A driver may block reads of its files.
    async fn update(&mut self) {
        let (options, config) = (Arc::clone(&self.options), Arc::clone(&self.config));
        let host_root = Arc::clone(&self.host_root);
        let written = tokio::task::spawn_blocking(move || write(&options, &host_root, &config));
        let written = written.await;
        let written = written.unwrap_or_else(|error| Written::failed(&error));
        for change in written.changes {
            tracing::info!("CDI: {change}");
        }
        for (key, Problem { text, is_error }) in &written.problems {
            match (self.logged.contains(key), is_error) {
                (true, _) => {}
                (false, true) => tracing::error!("CDI: {text}"),
                (false, false) => tracing::warn!("CDI: {text}"),
            }
        }
        let problems = written.problems.values();
        self.metrics
            .cdi_errors(problems.filter(|problem| problem.is_error).count());
        self.logged = written.problems.into_keys().collect();
    }
}

impl Written {
    fn failed(error: &dyn Error) -> Self {
        let mut written = Written::default();
        written.add(None, with_causes(error), true);
        written
    }

    /// Adds a problem, whose key is its text unless it has another.
    fn add(&mut self, key: Option<String>, text: String, is_error: bool) {
        let key = key.unwrap_or_else(|| text.clone());
        self.problems.insert(key, Problem { text, is_error });
    }
}

/// Writes the specifications once.
fn write(options: &CdiOptions, host_root: &Path, config: &Config) -> Written {
    let generator = Generator {
        config,
        only: &[],
        form: match options.form {
            CdiForm::Plain => Form::Plain,
            CdiForm::Thin => Form::Thin {
                program: &options.hook,
                timeout: runtime_config::HOOK_TIMEOUT,
            },
        },
        host_root,
    };
    let host = match RealHost::open(&config.host_root) {
        Ok(host) => host,
        Err(error) => return Written::failed(&error),
    };
    let Classes { usable, errors, .. } = match Classes::load(config) {
        Ok(classes) => classes,
        Err(error) => return Written::failed(&error),
    };
    let errors = errors.into_iter().map(Err);
    let generated = generator.generate(usable.into_iter().map(Ok).chain(errors), &host);
    let changes = match directory::update(&options.directory, &generated, true) {
        Ok(changes) => changes,
        Err(error) => return Written::failed(&error),
    };
    let mut written = Written::default();
    for omission in &generated.omissions {
        written.add(omission.key(), with_causes(omission), omission.is_error());
    }
    for change in changes {
        let text = change.to_string();
        match change {
            Change::Conflict { .. } => written.add(None, text, true),
            Change::Wrote { .. } | Change::Removed(_) => written.changes.push(text),
        }
    }
    written
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
