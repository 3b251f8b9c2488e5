//! The plan for people.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::{Action, InjectionPlan};

impl fmt::Display for InjectionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for grant in &self.grants {
            let (given, of) = (grant.devices.len(), grant.of);
            writeln!(f, "{}: {given} of {of} devices", grant.class)?;
            writeln!(f, "  asked by   {}", grant.asked_by)?;
            writeln!(f, "  granted by {}", grant.authorized_by)?;
        }
        if self.grants.is_empty() {
            writeln!(f, "nothing is asked for, so nothing is done")?;
        }
        let rows: Vec<[String; 3]> = self
            .steps
            .iter()
            .map(|step| row(&step.action, &step.why))
            .collect();
        let width = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
        for [kind, why, what] in rows {
            writeln!(f, "  {kind:<10} {why:<width$}  {what}")?;
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

fn row(action: &Action, why: &str) -> [String; 3] {
    let (kind, what) = match action {
        Action::Prepare(preparation) => {
            let program = preparation.program.display().to_string();
            let command = [&[program], preparation.arguments.as_slice()].concat();
            let wanted = &preparation.wanted;
            ("prepare", format!("{wanted} by {}", command.join(" ")))
        }
        Action::Allow { rule, in_spec } => {
            let number = |n: Option<i64>| n.map_or("*".into(), |n| n.to_string());
            let kind = rule.typ().unwrap_or_default().as_str().to_owned();
            let (major, minor) = (number(rule.major()), number(rule.minor()));
            let access = rule.access().as_deref().unwrap_or("rwm");
            let and = if *in_spec { ", as the spec does" } else { "" };
            ("allow", format!("{kind} {major}:{minor} {access}{and}"))
        }
        Action::Node { source, device } => {
            let kind = device.typ();
            let number = format!("{} {}:{}", kind.as_str(), device.major(), device.minor());
            (
                "node",
                format!("{} ({number})", placed(source, device.path())),
            )
        }
        Action::Mask { path, files, shown } => ("mask", masked(path, files, shown)),
        Action::Directory { mount } => ("directory", bound(mount)),
        Action::File { mount } => ("file", bound(mount)),
        Action::Library { mount, links } => {
            let name = mount
                .destination()
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            let names: Vec<&str> = [&*name]
                .into_iter()
                .chain(links.iter().map(|l| &**l))
                .collect();
            let source = mount
                .source()
                .as_deref()
                .and_then(Path::parent)
                .unwrap_or(Path::new("?"));
            (
                "library",
                format!("{} from {}", names.join(", "), source.display()),
            )
        }
        Action::Loader {
            directories,
            libraries,
            directory_32bit,
            libraries_32bit,
        } => {
            let directories = directories.iter().chain(directory_32bit);
            let directories: Vec<_> = directories.map(|d| d.display().to_string()).collect();
            let count = libraries.len() + libraries_32bit.len();
            (
                "loader",
                format!("{count} names in {}", directories.join(", ")),
            )
        }
    };
    [kind.into(), why.into(), what]
}

fn masked(path: &Path, files: &BTreeMap<PathBuf, String>, shown: &[Mount]) -> String {
    let below = |seen: &Path| {
        let below = seen.strip_prefix(path).unwrap_or(seen);
        below.display().to_string()
    };
    let seen = files
        .keys()
        .map(PathBuf::as_path)
        .chain(shown.iter().map(|mount| mount.destination().as_path()));
    let seen: Vec<String> = seen.map(below).collect();
    match seen.as_slice() {
        [] => format!("{} shows nothing", path.display()),
        seen => format!("{} shows only {}", path.display(), seen.join(", ")),
    }
}

fn bound(mount: &Mount) -> String {
    placed(
        mount.source().as_deref().unwrap_or(Path::new("?")),
        mount.destination(),
    )
}

/// One path where the container has it under the host's own name.
fn placed(source: &Path, destination: &Path) -> String {
    if source == destination {
        destination.display().to_string()
    } else {
        format!("{} from {}", destination.display(), source.display())
    }
}
