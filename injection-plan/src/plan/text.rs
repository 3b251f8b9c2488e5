//! Formats an injection plan as text. `boathook explain` prints it.

use std::fmt;
use std::path::{Path, PathBuf};

use device_class::discover::{CreatedNode, NetInterface, NetInterfaceSearch};

use super::{Action, BindMount, ImageLibraries, InjectionPlan};

impl fmt::Display for InjectionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for grant in &self.grants {
            let (granted, available) = (grant.devices.len(), grant.available_count);
            writeln!(f, "{}: {granted} of {available} devices", grant.class)?;
            writeln!(f, "  requested by  {}", grant.requested_by)?;
            writeln!(f, "  authorized by {}", grant.authorized_by)?;
            for awaited in &grant.awaited_devices {
                let request = awaited.to_request_text();
                writeln!(f, "  waiting for   {request}")?;
                if let Some(similar_device) = grant.similar_devices.get(&request) {
                    writeln!(f, "                {similar_device}")?;
                }
            }
            for name in &grant.detached_names {
                writeln!(f, "  detached      {name}")?;
            }
        }
        if self.grants.is_empty() {
            writeln!(f, "no request, nothing to do")?;
        }
        let rows: Vec<[String; 3]> = self
            .steps
            .iter()
            .map(|step| format_step(&step.action, &step.owner_labels))
            .collect();
        let width = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
        for [kind, owner_labels, description] in rows {
            writeln!(f, "  {kind:<10} {owner_labels:<width$}  {description}")?;
        }
        for need in &self.needs {
            let owner_labels = need.class.as_str();
            writeln!(f, "  {:<10} {owner_labels:<width$}  {need}", "needs")?;
        }
        for (name, value) in &self.env {
            writeln!(f, "  env        {name}={value}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "  warning    {warning}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note       {note}")?;
        }
        Ok(())
    }
}

/// Returns the three columns of a step's line: the kind of the step, the devices and classes that
/// need it, and its description.
fn format_step(action: &Action, owner_labels: &str) -> [String; 3] {
    let (kind, description) = match action {
        Action::Prepare(preparation) => {
            let program = preparation.program.display().to_string();
            let command = [&[program], preparation.arguments.as_slice()].concat();
            let state = &preparation.requested_state;
            ("prepare", format!("{state} by {}", command.join(" ")))
        }
        Action::Allow {
            rule, is_in_spec, ..
        } => {
            let suffix = if *is_in_spec {
                ", as the spec does"
            } else {
                ""
            };
            ("allow", format!("{rule}{suffix}"))
        }
        Action::Node {
            mount,
            number,
            created_node_permissions,
        } => {
            let details = match created_node_permissions {
                Some(node) => format!("made with mode {:04o} and group {}", node.mode, node.gid),
                None => format_options(mount),
            };
            (
                "node",
                format!("{} ({number}; {details})", format_paths(mount)),
            )
        }
        Action::MakeNode {
            path,
            number,
            created_node,
        } => {
            let CreatedNode {
                driver,
                permissions,
                ..
            } = created_node;
            let details = format!(
                "made with mode {:04o} and group {}",
                permissions.mode, permissions.gid
            );
            let reason = format!("the host has no node of the driver {driver}");
            (
                "node",
                format!("{} ({number}; {details}: {reason})", path.display()),
            )
        }
        Action::NetInterfaces { interfaces, search } => {
            ("netdev", format_interfaces(interfaces, search))
        }
        Action::Link { path, target } => {
            let (path, target) = (path.display(), target.display());
            ("link", format!("{path} -> {target}"))
        }
        Action::Mask {
            path,
            files,
            visible_mounts,
            links,
            ..
        } => {
            let visible_mounts = visible_mounts.iter().map(|mount| &mount.path);
            let visible_paths = files.keys().chain(links.keys()).chain(visible_mounts);
            ("mask", format_mask(path, visible_paths))
        }
        Action::Directory(mount) => ("directory", format_mount(mount)),
        Action::File(mount) => ("file", format_mount(mount)),
        Action::Library {
            mount,
            links,
            image_links,
            ..
        } => {
            let name = mount.path.file_name().unwrap_or_default();
            let names: Vec<_> = [name.to_string_lossy()]
                .into_iter()
                .chain(links.iter().map(Into::into))
                .collect();
            let source = mount.source.parent().unwrap_or(&mount.source);
            let (names, source) = (names.join(", "), source.display());
            let mut text = format!("{names} from {source} ({})", format_options(mount));
            if !image_links.is_empty() {
                let image_link_names: Vec<&str> = image_links.iter().map(String::as_str).collect();
                let link_names = image_link_names.join(", ");
                text.push_str(&format!("; in the image's library directory: {link_names}"));
            }
            ("library", text)
        }
        Action::Loader {
            directories,
            libraries,
            image_libraries,
            library_path_dirs,
            directory_32bit,
            libraries_32bit,
        } => {
            let directories: Vec<_> = directories
                .iter()
                .chain(directory_32bit)
                .map(|directory| directory.display().to_string())
                .collect();
            let count = libraries.len() + libraries_32bit.len();
            let mut text = format!("{count} names in {}", directories.join(", "));
            for ImageLibraries {
                directory,
                library,
                host_major_version,
            } in image_libraries
            {
                text.push_str(&format!(
                    "; after the image's {} if its {library} is newer than {host_major_version}",
                    directory.display()
                ));
            }
            if !library_path_dirs.is_empty() {
                let path: Vec<_> = library_path_dirs
                    .iter()
                    .map(|directory| directory.display().to_string())
                    .collect();
                text.push_str(&format!(
                    "; over files with these names in LD_LIBRARY_PATH: {}",
                    path.join(", ")
                ));
            }
            ("loader", text)
        }
    };
    [kind.into(), owner_labels.into(), description]
}

fn format_interfaces(interfaces: &[NetInterface], search: &NetInterfaceSearch) -> String {
    if interfaces.is_empty() {
        let pattern = search.pattern();
        return format!("{pattern} matches nothing in the host's network namespace now");
    }
    let texts = interfaces.iter().map(|interface| {
        let NetInterface {
            name,
            name_in_container,
            ..
        } = interface;
        if name == name_in_container {
            name.clone()
        } else {
            format!("{name_in_container} from {name}")
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn format_mask<'p>(path: &Path, visible_paths: impl Iterator<Item = &'p PathBuf>) -> String {
    let visible_paths: Vec<String> = visible_paths
        .map(|visible_path| visible_path.strip_prefix(path).unwrap_or(visible_path))
        .map(|relative_path| relative_path.display().to_string())
        .collect();
    match visible_paths.as_slice() {
        [] => format!("{} shows nothing", path.display()),
        paths => format!("{} shows only {}", path.display(), paths.join(", ")),
    }
}

fn format_mount(mount: &BindMount) -> String {
    format!("{} ({})", format_paths(mount), format_options(mount))
}

fn format_options(mount: &BindMount) -> String {
    mount.options().collect::<Vec<_>>().join(",")
}

/// Returns the path in the container, with the path on the host if it is a different one, as in
/// `/dev/a from /dev/b`.
fn format_paths(mount: &BindMount) -> String {
    let (source, path) = (mount.source.display(), mount.path.display());
    if mount.source == mount.path {
        path.to_string()
    } else {
        format!("{path} from {source}")
    }
}
