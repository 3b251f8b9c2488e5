//! Scans the classes and devices of this host for `boathook list`.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use device_class::load;
use device_class::name::ClassName;
use hook::exit::ExitCode;
use hook::planner;
use injection_plan::request::RequestNames;

use crate::command::devices::ListedDevice;
use crate::command::finding::describe_missing_class_files;
use crate::command::holders::Holders;
use crate::command::launcher::is_cluster_node;
use crate::command::{CommandError, select_sources};

/// The classes that a user selected for `boathook list`.
pub(super) struct ClassSelection<'a> {
    /// The names of the selected classes. If this list is empty, the default classes are selected.
    /// On a cluster node, these are the enabled classes. On any other host, these are all classes
    /// except those of virtual devices that are not enabled.
    pub(super) class_names: &'a [ClassName],
    /// True if all classes are selected, including those that are not listed by default.
    pub(super) include_all_classes: bool,
}

/// The classes and devices that a scan of this host found.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) devices: Vec<ListedDevice>,
    /// True if the host has at least one class file. Without class files, no device can be found.
    pub(super) has_class_file: bool,
    /// The names of the selected classes.
    pub(super) classes: Vec<String>,
    pub(super) classes_without_devices: Vec<String>,
    /// The classes whose devices are hidden by config.toml, each with its number of hidden devices.
    pub(super) hidden_classes: Vec<String>,
    /// The devices of the machine that are missing in the container in which Boathook runs. Each
    /// entry is a line of text.
    pub(super) inaccessible_devices: Vec<String>,
    /// Hardware that the administrator has probably given away on purpose, such as a GPU that a
    /// virtual machine has. Each entry is a line of text.
    pub(super) passthrough_hardware: Vec<String>,
    /// The classes that have devices but are not selected, each with its number of devices.
    pub(super) disabled_classes: Vec<String>,
    /// The errors of invalid class files. The classes in these files are left out.
    pub(super) class_file_errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) is_cluster_node: bool,
}

impl Scan {
    /// Scans the host for devices of the selected classes. If a class file is invalid, the other
    /// classes are still scanned.
    pub(super) fn scan_host(
        selection: &ClassSelection<'_>,
        holders: Option<&Holders>,
        config: &Config,
    ) -> Result<Self, CommandError> {
        let host = planner::open_host(config)?;
        let mut scan = Scan {
            is_cluster_node: is_cluster_node(config),
            ..Scan::default()
        };
        let sources = load::read_each_source(&config.classes)?;
        scan.has_class_file = !sources.is_empty();
        if !scan.has_class_file {
            scan.warnings.push(describe_missing_class_files(config));
        }
        // Unknown class names in config.toml are reported only if all class files were read. If a
        // file cannot be read, the name could be that of its class.
        if sources.iter().all(Result::is_ok) {
            let class_names = sources.iter().flatten();
            let class_names = class_names.map(|source| source.name.as_str());
            scan.warnings
                .extend(config.describe_unknown_classes(class_names));
        }
        for source in select_sources(selection.class_names, sources)? {
            let ignores_errors = selection.class_names.is_empty()
                && source
                    .as_ref()
                    .is_ok_and(|source| config.ignores_errors_of(source));
            let class = match source.and_then(|source| config.class(&source)) {
                Ok(class) => class,
                Err(_) if ignores_errors => continue,
                Err(error) => {
                    scan.class_file_errors
                        .push(hook::log::format_error_chain(&error));
                    continue;
                }
            };
            scan.add_class(&class, selection, holders, &host);
        }
        Ok(scan)
    }

    fn add_class(
        &mut self,
        class: &DeviceClass,
        selection: &ClassSelection<'_>,
        holders: Option<&Holders>,
        host: &impl device_class::HostView,
    ) {
        let mut inventory = discover::find_devices(class, host);
        if let Some(reason) = discover::find_refusal_reason(class, host) {
            inventory.mark_all_unhealthy(&reason);
        }
        inventory.mark_mixed_devices_unhealthy(class);
        if selection.class_names.is_empty()
            && !selection.include_all_classes
            && !is_listed_by_default(class, self.is_cluster_node)
        {
            if !inventory.devices.is_empty() {
                let name_and_count = format!("{} ({})", class.name, inventory.devices.len());
                self.disabled_classes.push(name_and_count);
            }
            return;
        }
        if !inventory.devices.is_empty() {
            inventory
                .warnings
                .extend(discover::describe_due_run(class, host));
        }
        let capabilities = class.spec.request.find_default_capabilities();
        let hardware_reports = discover::describe_unusable_hardware(
            class,
            !selection.class_names.is_empty(),
            &capabilities,
            &inventory,
            host,
        );
        for report in hardware_reports {
            if report.is_intended {
                self.passthrough_hardware.push(report.text);
            } else {
                inventory.warnings.push(report.text);
            }
        }
        let warnings = inventory.warnings.iter();
        self.warnings
            .extend(warnings.map(|warning| format!("class {}: {warning}", class.name)));
        if inventory.devices.is_empty() {
            self.classes_without_devices.push(class.name.to_string());
            if !inventory.hidden_ids.is_empty() {
                let name_and_count = format!("{} ({})", class.name, inventory.hidden_ids.len());
                self.hidden_classes.push(name_and_count);
            }
        }
        let inaccessible_devices = inventory.inaccessible_devices.iter();
        self.inaccessible_devices.extend(
            inaccessible_devices
                .map(|device| format!("{} is absent: {}", device.id, device.reason)),
        );
        self.classes.push(class.name.to_string());
        let request_names = RequestNames::new(class, &inventory);
        self.devices.extend(inventory.devices.iter().map(|device| {
            let mut listed_device = ListedDevice::new(class, device, &request_names);
            listed_device.holders =
                holders.map(|holders| holders.find_holders(&class.name, device));
            listed_device
        }));
    }

    pub(super) fn log_problems(&self) {
        for warning in &self.warnings {
            hook::log::warning(warning);
        }
        for reason in &self.class_file_errors {
            hook::log::error(&format!("class left out: {reason}"));
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        if self.class_file_errors.is_empty() {
            ExitCode::Success
        } else {
            ExitCode::Config
        }
    }
}

/// Returns whether the class is listed if the user names no class. An enabled class, which is
/// offered to pods, is always listed. On a host that is not a cluster node, the other classes are
/// listed too. Only those of virtual devices are left out, because every host has virtual devices.
fn is_listed_by_default(class: &DeviceClass, is_cluster_node: bool) -> bool {
    let mut sources = class.spec.discover.iter();
    class.spec.is_enabled
        || !is_cluster_node && sources.any(|source| source.virtual_device_count.is_none())
}
