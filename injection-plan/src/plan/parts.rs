//! Adds nodes, libraries, files, masks and directories of the host to a plan. If two of them have the
//! same path in the container and different sources, the plan is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::discover::{
    Device, FoundDirectory, FoundEdits, FoundFile, FoundMask, FoundNode, NodeForm, Presence,
};
use device_class::host::Programs;

use super::builder::{PlanBuilder, PlannedLibrary, PlannedNode};
use super::{INJECTED, LIBRARIES, LIBRARIES_32BIT, PlanError, SpecDevices, StepUser};
use crate::request::Awaited;

impl PlanBuilder {
    pub(super) fn add_node(&mut self, node: &FoundNode, user: &StepUser) -> Result<(), PlanError> {
        if let Some(lack) = &node.lack {
            let text = format!("{}: {}", user.label(), lack.text);
            let messages = match lack.is_of_switch {
                true => &mut self.notes,
                false => &mut self.warnings,
            };
            messages.push(text);
            return Ok(());
        }
        let Some(number) = self.require(&node.number, &node.host, user)?.copied() else {
            return Ok(());
        };
        let rule = self.rules.entry(number).or_default();
        let needed = rule.needed.entry(user.clone()).or_insert(node.access);
        *needed = needed.union(node.access);
        if !matches!(node.form, NodeForm::Made(_)) {
            rule.host_node.get_or_insert_with(|| node.host.clone());
        }
        let planned = PlannedNode {
            source: node.host.clone(),
            number,
            form: node.form.clone(),
        };
        let (before, users) = self
            .nodes
            .entry(node.container.clone())
            .or_insert((planned.clone(), BTreeSet::new()));
        if *before != planned {
            return Err(new_conflict(
                node.container.clone(),
                &before.source,
                &planned.source,
            ));
        }
        users.insert(user.clone());
        for link in &node.links {
            add_source(&mut self.links, link, node.container.clone(), user)?;
        }
        Ok(())
    }

    /// Checks that the runtime puts nothing else at the paths that requests chose for nodes.
    pub(super) fn check_places(&self, spec: &SpecDevices) -> Result<(), PlanError> {
        for path in &self.chosen_paths {
            let Some((node, users)) = self.nodes.get(path) else {
                continue;
            };
            if let Some(reason) = spec.find_occupant(path, Some(node.number)) {
                let users: Vec<&str> = users.iter().map(|user| user.label()).collect();
                return Err(PlanError::Occupied {
                    user: users.join(", "),
                    path: path.clone(),
                    reason,
                });
            }
        }
        self.check_awaited_places(spec)
    }

    /// Checks that the container has nothing at the path that a request chose for an awaited device.
    /// The device would hide it when it arrives.
    fn check_awaited_places(&self, spec: &SpecDevices) -> Result<(), PlanError> {
        let awaited = self.grants.iter().flat_map(|grant| &grant.waiting);
        for awaited in awaited {
            let Awaited::Device {
                name,
                path: Some(path),
            } = awaited
            else {
                continue;
            };
            let user = name.name_text();
            if let Some((_, users)) = self.nodes.get(path) {
                let users: Vec<&str> = users.iter().map(|user| user.label()).collect();
                return Err(PlanError::Conflict {
                    path: path.clone(),
                    first: users.join(", "),
                    second: user,
                });
            }
            if let Some(reason) = spec.find_occupant(path, None) {
                return Err(PlanError::Occupied {
                    user,
                    path: path.clone(),
                    reason,
                });
            }
        }
        Ok(())
    }

    pub(super) fn add_edits(
        &mut self,
        edits: &FoundEdits,
        devices: &[&Device],
        class: &StepUser,
    ) -> Result<(), PlanError> {
        for library in &edits.libraries {
            let named = Path::new(&library.soname);
            let Some(source) = self.require(&library.file, named, class)?.cloned() else {
                continue;
            };
            let name = source
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let first = self
                .libraries
                .entry((library.programs, name))
                .or_insert(PlannedLibrary {
                    source: source.clone(),
                    links: BTreeSet::new(),
                    names: BTreeSet::new(),
                    image_links: BTreeSet::new(),
                    users: BTreeSet::new(),
                });
            if first.source != source {
                let path = library_dir(library.programs).join(&library.soname);
                return Err(new_conflict(path, &first.source, &source));
            }
            first.links.extend(library.links.iter().cloned());
            let names = library.links.iter().chain([&library.soname]);
            first.names.extend(names.cloned());
            first
                .image_links
                .extend(library.image_links.iter().cloned());
            first.users.insert(class.clone());
        }
        for libraries in &edits.image_libraries {
            if !self.image_libraries.contains(libraries) {
                self.image_libraries.push(libraries.clone());
            }
        }
        self.add_files(&edits.files, class)?;
        for mask in &edits.masks {
            self.add_mask(mask, devices, class)?;
        }
        self.add_directories(&edits.directories, class)
    }

    pub(super) fn add_files(
        &mut self,
        files: &[FoundFile],
        user: &StepUser,
    ) -> Result<(), PlanError> {
        for file in files {
            let Some(source) = self.require(&file.file, &file.path, user)?.cloned() else {
                continue;
            };
            let place = self.files.entry(file.container.clone());
            let (first, users) = place.or_insert((source.clone(), BTreeSet::new()));
            if *first != source {
                return Err(new_conflict(
                    file.container.clone(),
                    &first.path,
                    &source.path,
                ));
            }
            users.insert(user.clone());
        }
        Ok(())
    }

    pub(super) fn add_directories(
        &mut self,
        directories: &[FoundDirectory],
        user: &StepUser,
    ) -> Result<(), PlanError> {
        for directory in directories {
            let found = self.require(&directory.directory, &directory.path, user)?;
            let Some(source) = found.cloned() else {
                continue;
            };
            add_source(&mut self.directories, &directory.container, source, user)?;
            if directory.writable {
                self.writable.insert(directory.container.clone());
            }
            if !directory.libraries.is_empty() {
                self.searched
                    .push((directory.container.clone(), directory.libraries.clone()));
            }
        }
        Ok(())
    }

    fn add_mask(
        &mut self,
        mask: &FoundMask,
        devices: &[&Device],
        class: &StepUser,
    ) -> Result<(), PlanError> {
        // The texts of a mask list the container's devices. A container without devices
        // needs neither the texts nor the mask.
        if !mask.texts.is_empty() && devices.is_empty() {
            return Ok(());
        }
        let mut files = Vec::new();
        for copy in &mask.copies {
            if let Some(text) = self.require(&copy.text, &copy.path, class)? {
                files.push((copy.path.clone(), text.clone()));
            }
        }
        let planned = self.masks.entry(mask.path.clone()).or_default();
        planned.users.insert(class.clone());
        for text in &mask.texts {
            let bits = devices.iter().map(|device| text.bits(&device.attributes));
            let first = planned.texts.entry(text.path.clone());
            let (first, all) = first.or_insert((text.clone(), 0));
            if first.text != text.text {
                return Err(new_conflict(text.path.clone(), &text.path, &text.path));
            }
            *all |= bits.fold(0, |all, one| all | one);
        }
        for (path, text) in files {
            let before = planned.files.entry(path.clone()).or_insert(text.clone());
            if *before != text {
                return Err(new_conflict(path.clone(), &path, &path));
            }
        }
        Ok(())
    }

    /// Makes the files and directories of a device visible in the masks that cover them. A path that
    /// no mask covers is visible anyway.
    pub(super) fn add_shown(&mut self, device: &Device, user: &StepUser) -> Result<(), PlanError> {
        for shown in &device.shown {
            let Some(source) = self.require(&shown.source, &shown.path, user)?.cloned() else {
                continue;
            };
            let mut masks = self.masks.iter_mut();
            if let Some((_, mask)) = masks.find(|(path, _)| shown.path.starts_with(path)) {
                match &shown.link {
                    Some(target) => mask.links.insert(shown.path.clone(), target.clone()),
                    None => mask.shown.insert(shown.path.clone(), source),
                };
            }
        }
        Ok(())
    }

    /// Adds the network interfaces of a device, once for all requests that name the device.
    pub(super) fn add_net_interfaces(&mut self, device: &Device, user: &StepUser) {
        let Some(found) = &device.net_interfaces else {
            return;
        };
        let mut known = self.net_interfaces.iter_mut();
        match known.find(|(known, _)| known.search == found.search) {
            Some((_, users)) => drop(users.insert(user.clone())),
            None => self
                .net_interfaces
                .push((found.clone(), [user.clone()].into())),
        }
    }

    /// Returns the part of the host that was found. Returns `None` and records the path for
    /// a note if the part is optional and missing.
    ///
    /// # Errors
    /// Returns an error if the part is required and missing or unusable.
    fn require<'a, T>(
        &mut self,
        presence: &'a Presence<T>,
        path: &Path,
        user: &StepUser,
    ) -> Result<Option<&'a T>, PlanError> {
        match presence {
            Presence::Found(found) => Ok(Some(found)),
            Presence::Optional => {
                let absent = self.absent.entry(user.label().to_owned()).or_default();
                let path = path.display().to_string();
                if !absent.contains(&path) {
                    absent.push(path);
                }
                Ok(None)
            }
            Presence::Unusable(problem) => Err(PlanError::Unfit {
                user: user.label().to_owned(),
                problem: problem.clone(),
            }),
        }
    }
}

/// Returns the directory in the container for the libraries of 64-bit or 32-bit programs.
pub(super) fn library_dir(programs: Programs) -> PathBuf {
    let directory = match programs {
        Programs::Native => LIBRARIES,
        Programs::Bits32 => LIBRARIES_32BIT,
    };
    Path::new(INJECTED).join(directory)
}

fn add_source(
    places: &mut BTreeMap<PathBuf, (PathBuf, BTreeSet<StepUser>)>,
    path: &Path,
    source: PathBuf,
    user: &StepUser,
) -> Result<(), PlanError> {
    let (first, users) = places
        .entry(path.into())
        .or_insert((source.clone(), BTreeSet::new()));
    if *first != source {
        return Err(new_conflict(path.into(), first, &source));
    }
    users.insert(user.clone());
    Ok(())
}

fn new_conflict(path: PathBuf, first: &Path, second: &Path) -> PlanError {
    let (first, second) = (first.display().to_string(), second.display().to_string());
    PlanError::Conflict {
        path,
        first,
        second,
    }
}
