//! Making a device what a container wants, by a program of the host: what is
//! to be run, and the running of it. It is the one module here that changes
//! the system. It stands here because the hook and the plugin both need it,
//! and share nothing else.

mod run;

use std::path::PathBuf;

use serde::Serialize;

pub use run::PrepareError;

use crate::class::{DeviceClass, PathTemplateError, Prepare, When};
use crate::discover::Device;
use crate::template::Attributes;

/// One run of a program for one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preparation {
    /// The program, an absolute path on the host.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may take, in seconds.
    pub timeout: u64,
    /// The file that tells whether the device is as wanted.
    pub file: PathBuf,
    /// What has to be in the file.
    pub wanted: String,
}

impl Preparation {
    /// What is run for a device whose attributes, with what is wanted of it,
    /// are `known`.
    pub(crate) fn of(
        prepare: &Prepare,
        device: &Device,
        known: &Attributes,
    ) -> Result<Self, PathTemplateError> {
        let arguments = prepare
            .arguments
            .iter()
            .map(|argument| argument.fill(known));
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

    /// What is run before each start of a container that has the device;
    /// `None` where the class asks for nothing then.
    ///
    /// # Errors
    /// A template cannot be filled in.
    pub fn before_start(
        class: &DeviceClass,
        device: &Device,
    ) -> Result<Option<Self>, PathTemplateError> {
        let prepare = class.spec.prepare.as_ref();
        let prepare = prepare.filter(|prepare| prepare.when == When::PreStart);
        prepare
            .map(|prepare| Preparation::of(prepare, device, &device.attributes))
            .transpose()
    }
}
