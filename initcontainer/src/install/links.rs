//! Plans the links below /usr/local to programs, manual pages and completions.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{Engine, InstallOptions};

use crate::compatibility::ReplacedToolkits;
use crate::host::Host;
use crate::layout::{PACKAGED_PROGRAMS_DIR, PROGRAM_LINKS_DIR, SHARED_LINKS_DIR};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

/// Returns the links to make below /usr/local. An existing file of the same name is not changed. A
/// program that a package installed gets no link: the link would hide the package's program, and
/// the next installation would run from the old release. `makes_links_dir` tells whether other
/// steps make the directory of the program links.
pub(super) fn plan_links(
    host: &Host,
    payload: &Payload,
    makes_links_dir: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>> {
    let is_packaged = |name: &OsStr| host.exists(&Path::new(PACKAGED_PROGRAMS_DIR).join(name));
    let can_write = |dir: &str| {
        let entry = host.resolve(&Path::new(dir).join("any"));
        entry.is_ok_and(|entry| entry.check_dir_writable().is_ok())
    };
    let can_link_programs = makes_links_dir || can_write(PROGRAM_LINKS_DIR);
    let can_link_shared = can_write(SHARED_LINKS_DIR) && !is_packaged(OsStr::new("boathook"));
    let (mut links, mut existing_count) = (Vec::new(), 0);
    for link in payload.links() {
        let is_program = link.starts_with(PROGRAM_LINKS_DIR);
        let can_link = if is_program {
            can_link_programs && !is_packaged(link.file_name().unwrap_or_default())
        } else {
            can_link_shared
        };
        if !can_link || host.read_link(&link)? == Some(host.get_link_target(&link)) {
            continue;
        }
        if !host.find_missing_dirs(&link)?.is_empty() {
            links.push(link);
            continue;
        }
        // If a link cannot be made, only a note is reported, because nothing else needs the link.
        match host.resolve_nofollow(&link).and_then(|entry| entry.stat()) {
            Ok(None) => links.push(link),
            Ok(Some(_)) if is_program => {
                notes.push(format!("{} exists and is kept", link.display()));
            }
            Err(error) if is_program => notes.push(format!("no link {}: {error}", link.display())),
            _ => existing_count += 1,
        }
    }
    if existing_count > 0 {
        notes.push(format!(
            "{existing_count} names of manual pages and completions below {SHARED_LINKS_DIR} exist and are kept"
        ));
    }
    Ok(links)
}

/// Plans the removal of links to manual pages and completions that the new release does not have.
pub(super) fn plan_old_link_removal(host: &Host, payload: &Payload) -> Result<Vec<Step>> {
    let new_links: BTreeSet<PathBuf> = payload.links().collect();
    let recorded_links = Manifest::load(host)?.unwrap_or_default().links;
    let mut steps = Vec::new();
    for link in recorded_links {
        if link.starts_with(SHARED_LINKS_DIR) && !new_links.contains(&link) {
            steps.extend(plan_link_removal(host, &link)?);
        }
    }
    Ok(steps)
}

/// Returns a step that removes a link. Returns `None` if the link no longer leads to the file of
/// Boathook, because another program may have replaced it.
pub(crate) fn plan_link_removal(host: &Host, link: &Path) -> Result<Option<Step>> {
    let old_target = host.read_link(link)?;
    Ok(
        (old_target == Some(host.get_link_target(link))).then(|| Step::SetLink {
            link: link.into(),
            old_target,
            new_target: None,
        }),
    )
}

/// Returns the links that must be made in Docker's PATH, with the names of the replaced toolkits'
/// programs. The list is empty unless Docker is among `engines`.
pub(super) fn find_offered_links<'n>(
    names: &'n ReplacedToolkits,
    engines: &[(Engine, InstallOptions)],
) -> &'n [(PathBuf, PathBuf)] {
    names.list_needed_links(engines.iter().map(|(engine, _)| *engine))
}
