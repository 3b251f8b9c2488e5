//! What an installation does about `/etc/boathook/config.toml`.
//!
//! Without a given configuration a default is written once. A given one, such as a
//! cluster's ConfigMap, is kept up to date, so that the hook on the host and the
//! plugin in its container read the same. A file that somebody else wrote or
//! edited is left alone.

use std::path::Path;

use runtime_config::{Change, HostRoot};

use crate::error::Error;
use crate::layout::{CONFIG, DEFAULT_CONFIG, GIVEN_CONFIG};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

const MODE: u32 = 0o644;

/// The planned changes of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) steps: Vec<Step>,
    /// The text that is written.
    pub(crate) written: Option<String>,
    /// The text of an earlier installation that it replaces.
    pub(crate) replaced: Option<String>,
    /// Why the given configuration is not written, if so.
    pub(crate) kept: Option<String>,
}

impl Configuration {
    pub(crate) fn plan(host: &HostRoot, payload: &Payload) -> Result<Self, Error> {
        let old = Manifest::load(host)?.unwrap_or_default();
        let now = host.read(Path::new(CONFIG))?;
        let mut plan = Self::default();
        let wanted = payload.config.as_deref();
        match (now, wanted) {
            (None, _) => plan.write(None, wanted.unwrap_or(DEFAULT_CONFIG)),
            (Some(_), None) => {}
            (Some(now), Some(wanted)) if now == wanted => {}
            (Some(now), Some(wanted)) if old.has_written(&now) => plan.write(Some(now), wanted),
            (Some(_), Some(_)) => {
                plan.kept = Some(format!(
                    "{CONFIG} was not written by boathook-init and is kept: the hook does not \
                     use the configuration that was given; remove the file to use it"
                ));
            }
        }
        plan.steps.extend(given(host, wanted)?);
        Ok(plan)
    }

    fn write(&mut self, before: Option<String>, text: &str) {
        self.steps
            .push(Step::write(CONFIG, before.as_deref(), text, MODE));
        self.written = Some(text.to_owned());
        self.replaced = before;
    }
}

/// Keeps a copy of what was given.
fn given(host: &HostRoot, wanted: Option<&str>) -> Result<Option<Step>, Error> {
    let before = host.read(Path::new(GIVEN_CONFIG))?;
    Ok(match (before, wanted) {
        (before, Some(wanted)) if before.as_deref() != Some(wanted) => {
            Some(Step::write(GIVEN_CONFIG, before.as_deref(), wanted, MODE))
        }
        (Some(before), None) => Some(Step::Change(Change::Remove {
            path: GIVEN_CONFIG.into(),
            before,
            mode: MODE,
        })),
        _ => None,
    })
}
