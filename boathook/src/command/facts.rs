//! Implements `boathook facts`, which runs programs of device drivers and writes the driver
//! properties that they report to files.

use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use device_class::config::Config;
use device_class::name::ClassName;
use device_class::{DeviceClass, discover, load};
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

/// The schedule by which driver programs run again, while a device is unhealthy because of the
/// properties that they reported.
pub(super) struct Retries {
    /// The time since the start of the command after which no further run starts.
    pub(super) duration: Duration,
    /// The time between the end of a run and the start of the next one.
    pub(super) interval: Duration,
}

/// Runs the driver programs of the classes `class_names` and writes the reported properties. If
/// `class_names` is empty, runs the programs of all classes.
///
/// With `retries`, runs only the programs of classes with a device that is unhealthy because of a
/// reported property. Such a device may become healthy later, for example when a fabric of switches
/// has started. The runs are repeated until there is no such class, or until the time of `retries`
/// is over.
pub(super) fn run(
    class_names: &[ClassName],
    retries: Option<&Retries>,
    as_json: bool,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut classes = read_classes_with_programs(class_names, config)?;
    let mut class_reports = Vec::new();
    match retries {
        None => {
            for class in &classes {
                class_reports.push(renew_properties(class, config)?);
            }
        }
        Some(retries) => {
            let start = Instant::now();
            loop {
                retain_unhealthy_classes(&mut classes, config)?;
                let has_time = start.elapsed() + retries.interval < retries.duration;
                if classes.is_empty() || !has_time {
                    break;
                }
                thread::sleep(retries.interval);
                for class in &classes {
                    let report = renew_properties(class, config)?;
                    class_reports.retain(|earlier: &ClassReport| earlier.class != report.class);
                    class_reports.push(report);
                }
            }
        }
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

/// Returns the selected classes that have driver programs and whose settings use the reported
/// properties.
fn read_classes_with_programs(
    class_names: &[ClassName],
    config: &Config,
) -> Result<Vec<DeviceClass>, CommandError> {
    let mut classes = Vec::new();
    for source in select_sources(class_names, load::read_each_source(&config.classes)?)? {
        let class = config.class(&source?)?;
        if !class.spec.property_programs.is_empty() && class.settings.uses_driver_properties() {
            classes.push(class);
        }
    }
    Ok(classes)
}

/// Keeps only the classes with a device that is unhealthy because of a property that a driver
/// program reported.
fn retain_unhealthy_classes(
    classes: &mut Vec<DeviceClass>,
    config: &Config,
) -> Result<(), CommandError> {
    // The host is opened again, because an earlier `HostView` does not show what the programs
    // changed.
    let host = planner::open_host(config)?;
    classes.retain(|class| {
        let inventory = discover::scan_devices(class, &host);
        discover::is_unhealthy_by_driver_property(class, &inventory)
    });
    Ok(())
}

/// Runs the driver programs of a class and writes the properties that they report.
fn renew_properties(class: &DeviceClass, config: &Config) -> Result<ClassReport, CommandError> {
    let host_root = &config.host_root;
    if host_root != Path::new("/") {
        let error = "programs are run in the host's root directory only";
        return Err(CommandError::Output(io::Error::other(error)));
    }
    let reported_properties =
        ReportedProperties::run_programs(class, host_root, |program, arguments| {
            let mut command = process::Command::new(program);
            command.args(arguments);
            command
        });
    // The host is opened again for each class, because an earlier `HostView` does not show what the
    // programs changed.
    let host = planner::open_host(config)?;
    let write_result = reported_properties.write(class, host_root, &host);
    let property_file =
        Path::new(device_class::driver_properties::PROPERTIES_DIR).join(class.name.as_str());
    let (path, was_written) = write_result.map_err(|error| CommandError::File {
        path: property_file,
        error,
    })?;
    Ok(ClassReport {
        class: class.name.clone(),
        file_path: was_written.then(|| path.display().to_string()),
        version: reported_properties.version().map(str::to_owned),
        programs: reported_properties.programs,
        faults: reported_properties.faults,
    })
}
