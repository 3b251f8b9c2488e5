//! Adds a warning to an injection plan if the container's AppArmor profile denies the container to
//! read files of the plan. This can happen even if config.json does not mask the paths of the
//! files.

use std::path::PathBuf;

use injection_plan::plan::InjectionPlan;

/// The paths that the AppArmor profiles of engines do not allow to be read, with everything below
/// them. They are from Docker's template (moby, profiles/apparmor/template.go). podman, containerd
/// and CRI-O have copied its rules.
const DENIED_PATHS: [&str; 5] = [
    "/proc/kcore",
    "/proc/sysrq-trigger",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/security",
];

/// The prefixes of the names of the profiles that engines install. podman, for example, appends its
/// version to the prefix.
const ENGINE_PROFILES: [&str; 5] = [
    "docker-default",
    "containers-default",
    "cri-containerd",
    "crio-default",
    "nerdctl-default",
];

/// Returns the paths that a container with this AppArmor profile probably cannot read. Assumes the
/// rules of an engine's profile. Returns no path if the container is not confined by a profile.
pub(super) fn list_denied_paths(profile: Option<&str>) -> Vec<PathBuf> {
    let is_confined = profile.is_some_and(|profile| !matches!(profile, "" | "unconfined"));
    let paths: &[&str] = if is_confined { &DENIED_PATHS } else { &[] };
    paths.iter().map(PathBuf::from).collect()
}

/// Adds a warning for each path that an engine's profile denies, if the plan has files at or below
/// it. A profile that is not an engine's causes no warning. Its rules are unknown, and an
/// administrator may have written it to allow the files.
pub(super) fn warn_of_denied_paths(plan: &mut InjectionPlan, profile: Option<&str>) {
    let profile_name = profile.unwrap_or_default();
    let is_engine_profile = ENGINE_PROFILES
        .iter()
        .any(|prefix| profile_name.starts_with(prefix));
    if !is_engine_profile {
        return;
    }
    for (denied_path, denied_steps) in plan.find_hidden_paths(&list_denied_paths(profile)) {
        let owner_labels = Vec::from_iter(denied_steps.owner_labels).join(", ");
        let paths = denied_steps.paths.iter();
        let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        let (paths, denied_path) = (paths.join(", "), denied_path.display());
        plan.warnings.push(format!(
            "{owner_labels}: the AppArmor profile {profile_name} denies the container to read {paths}: \
             use a profile without a rule for {denied_path}, or none (Docker and podman: \
             --security-opt apparmor=unconfined, a pod: appArmorProfile of the type Unconfined)"
        ));
    }
}

#[cfg(test)]
mod tests {
    use injection_plan::plan::{Action, BindMount, InjectionStep, MountAttributes, SourceKind};

    use super::*;

    #[test]
    fn only_a_profile_that_denies_files_of_the_plan_is_reported() {
        let model = "/sys/firmware/devicetree/base/model";
        for (profile, path, reported) in [
            (Some("docker-default"), model, Some("docker-default")),
            (
                Some("containers-default-0.62.2"),
                model,
                Some("containers-default-0.62.2"),
            ),
            (Some("own"), model, None),
            (Some("own-docker-default"), model, None),
            (Some("docker-default"), "/proc/keys", None),
            (Some("docker-default"), "/sys/firmwares/a", None),
            (Some("unconfined"), model, None),
            (Some(""), model, None),
            (None, model, None),
        ] {
            let mount = BindMount {
                source: path.into(),
                path: path.into(),
                source_kinds: &[SourceKind::File],
                recursive: false,
                attributes: MountAttributes::FILE,
                is_optional: false,
                is_image_module: false,
            };
            let mut plan = InjectionPlan {
                steps: vec![InjectionStep {
                    action: Action::File(mount),
                    owner_labels: "board".to_owned(),
                    owners: Vec::new(),
                }],
                ..InjectionPlan::default()
            };
            warn_of_denied_paths(&mut plan, profile);
            let warnings: Vec<String> = reported
                .map(|reported| {
                    format!(
                        "board: the AppArmor profile {reported} denies the container to read {model}: use a \
                         profile without a rule for /sys/firmware, or none (Docker and podman: \
                         --security-opt apparmor=unconfined, a pod: appArmorProfile of the type \
                         Unconfined)"
                    )
                })
                .into_iter()
                .collect();
            assert_eq!(plan.warnings, warnings, "{profile:?} {path}");
        }
    }
}
