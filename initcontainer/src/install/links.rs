//! Plans the links below /usr/local to programs, manual pages and completions.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{Engine, Options};

use crate::compatibility::OfferedNames;
use crate::host::Host;
use crate::layout::{LINKS, PACKAGED, SHARED_LINKS};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

/// Returns the links to make below /usr/local. A name that is taken is not changed. A program that
/// a package installed gets no link: the link would hide the package's program, and the next
/// installation would run from the old release. `makes_directory` says that other steps make the
/// directory of the program links.
pub(super) fn plan_links(
    host: &Host,
    payload: &Payload,
    makes_directory: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>> {
    let packaged = |name: &OsStr| host.exists(&Path::new(PACKAGED).join(name));
    let can_write = |dir: &str| {
        let place = host.place(&Path::new(dir).join("any"));
        place.is_ok_and(|place| place.check_writable().is_ok())
    };
    let has_programs = makes_directory || can_write(LINKS);
    let has_shared = can_write(SHARED_LINKS) && !packaged(OsStr::new("boathook"));
    let (mut links, mut taken) = (Vec::new(), 0);
    for link in payload.links() {
        let is_program = link.starts_with(LINKS);
        let is_wanted = if is_program {
            has_programs && !packaged(link.file_name().unwrap_or_default())
        } else {
            has_shared
        };
        if !is_wanted || host.read_link(&link)? == Some(host.link_target(&link)) {
            continue;
        }
        if !host.missing_dirs(&link)?.is_empty() {
            links.push(link);
            continue;
        }
        // A link that cannot be made is only a note, because nothing else refers to it.
        match host.entry(&link).and_then(|place| place.stat()) {
            Ok(None) => links.push(link),
            Ok(Some(_)) if is_program => {
                notes.push(format!("{} exists and is kept", link.display()));
            }
            Err(e) if is_program => notes.push(format!("no link {}: {e}", link.display())),
            _ => taken += 1,
        }
    }
    if taken > 0 {
        notes.push(format!(
            "{taken} names of manual pages and completions below {SHARED_LINKS} exist and are kept"
        ));
    }
    Ok(links)
}

/// Plans the removal of links to manual pages and completions that the new release lacks.
pub(super) fn old_links(host: &Host, payload: &Payload) -> Result<Vec<Step>> {
    let wanted: BTreeSet<PathBuf> = payload.links().collect();
    let known = Manifest::load(host)?.unwrap_or_default().links;
    let mut steps = Vec::new();
    for link in known {
        if link.starts_with(SHARED_LINKS) && !wanted.contains(&link) {
            steps.extend(remove_link(host, &link)?);
        }
    }
    Ok(steps)
}

/// Plans the removal of a link, if it still leads to Boathook's file.
pub(crate) fn remove_link(host: &Host, link: &Path) -> Result<Option<Step>> {
    let before = host.read_link(link)?;
    Ok(
        (before == Some(host.link_target(link))).then(|| Step::SetLink {
            link: link.into(),
            before,
            after: None,
        }),
    )
}

pub(super) fn offered_links<'n>(
    names: &'n OfferedNames,
    engines: &[(Engine, Options)],
) -> &'n [(PathBuf, PathBuf)] {
    names.links(engines.iter().map(|(engine, _)| *engine))
}
