//! `[prepare]`: programs of the host that bring a device into the state that a
//! container requests. This is the only module of the crate that changes the
//! system.

mod run;

use std::path::PathBuf;

use serde::Serialize;

pub use run::PrepareError;

use device_class::class::{PathTemplateError, Prepare};
use device_class::discover::Device;
use device_class::template::Attributes;

/// One run of a program for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preparation {
    /// The program, an absolute path on the host.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// How long it may take, in seconds.
    pub timeout: u64,
    /// The file with the device's state.
    pub file: PathBuf,
    /// The requested content of the file.
    pub wanted: String,
}

impl Preparation {
    /// The run for a device whose attributes, including the requested value,
    /// are `known`.
    pub(crate) fn of(
        prepare: &Prepare,
        device: &Device,
        known: &Attributes,
    ) -> Result<Self, PathTemplateError> {
        let arguments = prepare
            .arguments
            .iter()
            .map(|argument| argument.fill(known))
            .filter(|argument| !argument.as_ref().is_ok_and(String::is_empty));
        Ok(Preparation {
            program: prepare.program.fill(known)?,
            arguments: arguments.collect::<Result<_, _>>()?,
            timeout: prepare.timeout.get().as_secs(),
            file: device
                .state
                .iter()
                .map(|state| state.path.clone())
                .collect(),
            wanted: prepare.equals.fill(known)?,
        })
    }
}
