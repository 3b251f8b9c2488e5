//! Describes the commands with which a user gives a running container its missing devices.

use std::path::Path;

use device_class::DeviceClass;
use device_class::name::shorten_container_id;
use injection_plan::plan::InjectionPlan;

use crate::command::containers::Container;
use crate::command::launcher::{Launcher, quote_for_shell};

/// A running container that may not have all device nodes, files and device rules of its injection
/// plan.
pub(super) struct IncompleteContainer<'a> {
    pub(super) container: &'a Container,
    pub(super) plan: &'a InjectionPlan,
    pub(super) classes: &'a [DeviceClass],
    pub(super) launcher: Launcher,
    pub(super) host_root: &'a Path,
}

impl IncompleteContainer<'_> {
    /// Describes what a user can do if device nodes or files are missing: attach the devices, or
    /// create the container again.
    pub(super) fn describe_missing_files_fix(&self) -> String {
        let replacement = self.launcher.describe_container_replacement();
        let Some(attach_command) = self.describe_attach_command() else {
            return format!(
                "{replacement}: the hook acts when a container is created, and devices or classes that \
                 came later are not added"
            );
        };
        let mut fix = format!("{attach_command} now");
        if self.classes.iter().any(|class| class.spec.is_followed) {
            fix += ", and `systemctl enable --now boathook-follow.service` lets a device return by \
                    itself from now on";
        }
        format!("{fix}; or {replacement}")
    }

    /// Describes what a user can do if the container's cgroup has lost device rules: attach the
    /// devices again, or create the container again.
    pub(super) fn describe_lost_rules_fix(&self) -> String {
        let replacement = self.launcher.describe_container_replacement();
        let lost_rules_hint = "if the rules were lost later (systemctl daemon-reload, an update of the \
                    container), `systemctl enable --now boathook-follow.service` returns them from \
                    now on";
        match self.describe_attach_command() {
            Some(attach_command) => {
                format!("{attach_command} now; or {replacement}; {lost_rules_hint}")
            }
            None => format!("{replacement}; {lost_rules_hint}"),
        }
    }

    /// Returns the `boathook attach` command that gives the container the devices of its plan.
    /// Returns `None` if the plan has no device, or more than `MAX_SHOWN_DEVICES`.
    fn describe_attach_command(&self) -> Option<String> {
        const MAX_SHOWN_DEVICES: usize = 4;
        let name = self.container.name(self.host_root);
        let name = name.unwrap_or_else(|| shorten_container_id(&self.container.id));
        let grants = self.plan.grants.iter();
        let devices: Vec<String> = grants
            .flat_map(|grant| {
                let devices = grant.devices.iter();
                devices.map(|device| quote_for_shell(&format!("{}={device}", grant.class)))
            })
            .collect();
        if name.is_empty() || devices.is_empty() || devices.len() > MAX_SHOWN_DEVICES {
            return None;
        }
        let name = quote_for_shell(&name);
        let devices = devices.join(" ");
        Some(format!(
            "`boathook attach {name} {devices}` gives them back"
        ))
    }
}
