//! Examines a container of Docker that does not run. Its bundle is gone, so its requests are read
//! from Docker's files about it.

use std::fs;
use std::io;
use std::path::PathBuf;

use device_class::config::Config;
use hook::exit::ExitCode;

use super::device_requests::ExaminedDeviceRequest;
use super::spec::ContainerSpec;
use super::{device_name, device_requests, examine_spec, has_fault, logged, stale_nodes};
use crate::command::containers::{Container, EndedContainer};
use crate::command::finding::{Finding, Severity};
use crate::command::log;

const SUBJECT: &str = "container";

/// A part of Docker's error message for a request, such as `--gpus`, for which Docker has no
/// driver.
const MISSING_DRIVER_ERROR: &str = "could not select device driver";

pub(super) fn examine_ended_container(
    container: &Container,
    ended_container: &EndedContainer,
    is_verbose: bool,
    config: &Config,
) -> Vec<Finding> {
    let requests = ExaminedDeviceRequest::examine_all(&ended_container.device_requests, config);
    let mut findings = if ended_container.cdi_names.is_empty() {
        examine_variables(container, ended_container, &requests, is_verbose, config)
    } else {
        // Docker resolves the names when it starts a container, so a container with an unknown name
        // exists but could never be started.
        let names = ended_container.cdi_names.iter();
        names
            .flat_map(|name| device_name::examine_device_name(name, config))
            .collect()
    };
    let Some(error) = &ended_container.error else {
        return findings;
    };
    let is_missing_request = |finding: &Finding| finding.fault == Some(ExitCode::NoRequest);
    // The hook's reason for a refusal says more than an examination that finds no request or no
    // fault. Only a refusal after the last successful start can be the cause of Docker's error.
    let refusal = find_refusal(error, &container.id).or_else(|| {
        let has_no_request = findings.iter().any(is_missing_request);
        let min_time = ended_container.earliest_refusal_time();
        has_no_request
            .then(|| logged::find_last_refusal(&container.id, min_time, config))
            .flatten()
    });
    if let Some(refusal) = refusal {
        findings.retain(|finding| !is_missing_request(finding));
        if !has_fault(&findings) {
            let text = format!("it was refused: {refusal}; docker has said: {error}");
            findings.push(Finding::new_fault(ExitCode::Request, SUBJECT, text));
        }
        return findings;
    }
    let missing_node_findings = examine_node_paths(ended_container, &findings, config);
    if !missing_node_findings.is_empty() {
        findings.retain(|finding| !is_missing_request(finding));
        findings.extend(missing_node_findings);
    }
    findings.push(if has_fault(&findings) {
        Finding::new(Severity::Note, SUBJECT, format!("docker has said: {error}"))
    } else {
        let finding = Finding::new_fault(ExitCode::NoContainer, SUBJECT, error);
        let lacks_driver = error.contains(MISSING_DRIVER_ERROR);
        let requests = if lacks_driver { &*requests } else { &[] };
        match device_requests::describe_driver_fix(requests, config) {
            Some(fix) => finding.with_fix(fix),
            None if ended_container.cdi_names.is_empty() => finding,
            None => finding.with_fix(
                "the names can be resolved now: start the container again (`docker start NAME`)",
            ),
        }
    });
    findings
}

/// Returns a fault for each node of `--device` that the host does not have, because Docker then
/// refuses to start the container. The suggested fix depends on `findings`, which say whether the
/// container requests devices.
fn examine_node_paths(
    ended_container: &EndedContainer,
    findings: &[Finding],
    config: &Config,
) -> Vec<Finding> {
    let is_missing = |path: &&PathBuf| {
        let path = path.strip_prefix("/").unwrap_or(path);
        fs::metadata(config.host_root.join(path))
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let mut faults = findings.iter().map(|finding| finding.fault);
    let has_request = ended_container.cdi_names.is_empty()
        && faults.all(|fault| fault != Some(ExitCode::NoRequest));
    let missing_paths = ended_container.node_paths.iter().filter(is_missing);
    let missing_node_findings = missing_paths.map(|path| {
        let text = format!(
            "`--device`, or `devices:` of compose, names {}, which this host does not have",
            path.display()
        );
        let fix = if has_request {
            "remove `--device`, or `devices:` of the service, if a variable of the container \
             requests the device"
                .to_owned()
        } else {
            stale_nodes::suggest_class_request(path, config)
        };
        Finding::new_fault(ExitCode::NoDevice, SUBJECT, text).with_fix(fix)
    });
    missing_node_findings.collect()
}

/// Examines the variables of a container, including those that Docker sets because of `--gpus`.
fn examine_variables(
    container: &Container,
    ended_container: &EndedContainer,
    requests: &[ExaminedDeviceRequest<'_>],
    is_verbose: bool,
    config: &Config,
) -> Vec<Finding> {
    let requested_variables = device_requests::list_variables(requests);
    let mut findings = Vec::new();
    if !requested_variables.is_empty() {
        let text = format!("`--gpus` of docker sets {}", requested_variables.join(" "));
        findings.push(Finding::new(Severity::Ok, "request", text));
    }
    let other_drivers = device_requests::describe_other_drivers(requests);
    findings.extend(other_drivers.map(|text| Finding::new(Severity::Note, "request", text)));
    // Docker appends the variables of device requests to those of the container. If a variable
    // occurs twice, the last value counts.
    let variables = [&*ended_container.env, &requested_variables].concat();
    match ContainerSpec::read(container, &variables, &config.host_root) {
        Ok(spec) => findings.extend(examine_spec(container, &spec, is_verbose, config)),
        Err(error) => {
            let text = log::format_error_chain(&error);
            findings.push(Finding::new_fault(ExitCode::Spec, "config.json", text));
        }
    }
    findings
}

/// Returns the reason why a program of Boathook refused the container `container_id`. The engine's
/// error message `error` contains this reason after `container ID: `.
fn find_refusal(error: &str, container_id: &str) -> Option<String> {
    let (_, message) = error.split_once(&format!("container {container_id}: "))?;
    let reason = message.lines().next()?.trim();
    // containerd appends the kind of its error, such as `: unknown`.
    let reason = reason.strip_suffix(": unknown").unwrap_or(reason);
    Some(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_found_in_dockers_error() {
        for (error, reason) in [
            (
                "error running prestart hook #0: exit status 5, stdout: , stderr: boathook: \
                 container 0a1b: no device `7`: see `boathook list`\n: unknown",
                Some("no device `7`: see `boathook list`"),
            ),
            (
                "OCI runtime create failed: boathook: container 0a1b: no device `7`: unknown",
                Some("no device `7`"),
            ),
            ("boathook: container 0a1bc: no device `7`", None),
            ("port 80 is in use", None),
        ] {
            assert_eq!(find_refusal(error, "0a1b").as_deref(), reason, "{error}");
        }
    }
}
