//! Implements `boathook facts`, which runs programs of device drivers and writes the driver
//! properties that they report to files.

use std::io::{self, Write};
use std::path::Path;
use std::process;

use device_class::config::Config;
use device_class::load;
use device_class::name::ClassName;
use hook::exit::ExitCode;
use hook::{log, planner};
use injection_plan::facts::ReportedProperties;
use serde::Serialize;

use super::{CommandError, print_json, select_sources};

/// The report about the driver programs of one class, for the output of `boathook facts`.
#[derive(Serialize)]
struct ClassReport {
    class: ClassName,
    /// The path of the file with the reported driver properties. It is `None` if no file was
    /// written.
    #[serde(rename = "file")]
    file_path: Option<String>,
    programs: Vec<String>,
    /// The driver version that the programs reported.
    version: Option<String>,
    faults: Vec<String>,
}

/// Runs the driver programs of the classes `class_names` and writes the reported properties. If
/// `class_names` is empty, runs the programs of all classes.
pub(super) fn run(
    class_names: &[ClassName],
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let host_root = &config.host_root;
    let mut class_reports = Vec::new();
    for source in select_sources(class_names, load::read_each_source(&config.classes)?)? {
        let class = config.class(&source?)?;
        if class.spec.property_programs.is_empty() || !class.settings.uses_driver_properties() {
            continue;
        }
        if host_root != Path::new("/") {
            let error = "programs are run in the host's root directory only";
            return Err(CommandError::Output(io::Error::other(error)));
        }
        let reported_properties =
            ReportedProperties::run_programs(&class, host_root, |program, arguments| {
                let mut command = process::Command::new(program);
                command.args(arguments);
                command
            });
        // The host is opened again for each class. A `HostView` from before would not show what the
        // programs changed.
        let host = planner::open_host(config)?;
        let write_result = reported_properties.write(&class, host_root, &host);
        let property_file =
            Path::new(device_class::driver_properties::PROPERTIES_DIR).join(class.name.as_str());
        let (path, was_written) = write_result.map_err(|error| CommandError::File {
            path: property_file,
            error,
        })?;
        class_reports.push(ClassReport {
            class: class.name,
            file_path: was_written.then(|| path.display().to_string()),
            version: reported_properties.version().map(str::to_owned),
            programs: reported_properties.programs,
            faults: reported_properties.faults,
        });
    }
    let has_fault = class_reports.iter().any(|report| !report.faults.is_empty());
    if as_json {
        print_json(&serde_json::json!({ "classes": class_reports }))?;
    } else {
        let out = &mut io::stdout().lock();
        for report in &class_reports {
            match (&report.file_path, &report.version) {
                (Some(file_path), Some(version)) => {
                    writeln!(
                        out,
                        "{}: wrote {file_path}, of version {version}",
                        report.class
                    )?;
                }
                (Some(file_path), None) => writeln!(out, "{}: wrote {file_path}", report.class)?,
                (None, _) => writeln!(out, "{}: its programs reported nothing", report.class)?,
            }
        }
    }
    for report in &class_reports {
        for fault in &report.faults {
            log::warning(&format!("{}: {fault}", report.class));
        }
    }
    Ok(if has_fault {
        ExitCode::Failure
    } else {
        ExitCode::Success
    })
}
