//! Devices that must be prepared as the container requests, before it gets them.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use device_class::class::MAX_CONTAINER_START;
use device_class::ownership;
use injection_plan::plan::{Action, InjectionPlan};
use injection_plan::prepare::PrepareError;
use nix::errno::Errno;

use super::ApplyError;
use crate::sys::group::Group;

/// Prepares the devices of a plan, one after the other, on the host whose root
/// is at `root`. All together have [`MAX_CONTAINER_START`].
pub(super) fn run(plan: &InjectionPlan, root: &Path) -> Result<(), ApplyError> {
    let end = Instant::now() + MAX_CONTAINER_START;
    for step in &plan.steps {
        if let Action::Prepare(preparation) = &step.action {
            let unusable = |error| {
                let program = preparation.program.clone();
                ApplyError::from(PrepareError::Ownership { program, error }).why(&step.why)
            };
            let program = ownership::program(root, &preparation.program).map_err(unusable)?;
            let mut command = Command::new(program);
            command
                .arg0(&preparation.program)
                .args(&preparation.arguments);
            let failed = |errno: Errno| {
                let error = PrepareError::Run {
                    program: preparation.program.clone(),
                    error: errno.into(),
                };
                ApplyError::from(error).why(&step.why)
            };
            // It ends with this process, however that ends.
            let group = Group::start().map_err(failed)?;
            let limit = Duration::from_secs(preparation.timeout)
                .min(end.saturating_duration_since(Instant::now()));
            preparation
                .run(command, group.id(), limit, root)
                .map_err(|error| ApplyError::from(error).why(&step.why))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use injection_plan::plan::InjectionStep;
    use injection_plan::prepare::Preparation;

    use super::*;

    #[test]
    fn a_device_that_is_not_made_what_is_wanted_is_named() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("bin")).unwrap();
        fs::write(host.path().join("id"), "old\n").unwrap();
        fs::copy("/bin/true", host.path().join("bin/true")).unwrap();
        std::os::unix::fs::symlink("/bin/true", host.path().join("bin/programmer")).unwrap();
        let plan = |wanted: &str| InjectionPlan {
            steps: vec![InjectionStep {
                action: Action::Prepare(Preparation {
                    program: "/bin/programmer".into(),
                    arguments: Vec::new(),
                    timeout: 60,
                    file: "/id".into(),
                    wanted: wanted.to_owned(),
                }),
                why: "port-0".to_owned(),
            }],
            ..InjectionPlan::default()
        };
        run(&plan("old"), host.path()).unwrap();
        assert_eq!(
            crate::log::chain(&run(&plan("new"), host.path()).unwrap_err()),
            "port-0: /bin/programmer exited 0, but /id is `old`, not `new`"
        );
    }
}
