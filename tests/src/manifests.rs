//! Renders the Kubernetes manifests of `deploy` with kubectl and Helm.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::binaries::source_tree;
use crate::captured::Captured;

/// The exit status of a script if the machine lacks Helm, or the schemas of Kubernetes.
const LACKS_PROGRAM: i32 = 77;

/// Returns the path of a file or directory of the source tree.
pub fn repository(path: &str) -> PathBuf {
    source_tree().join(path)
}

/// Parses the documents of a YAML text.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(text).with_context(|| text.to_owned())
}

/// Deserializes a value. A key that the type does not know is an error, because the API server
/// would refuse it.
pub fn typed<T: DeserializeOwned + Serialize>(value: &Value) -> Result<T> {
    let object: T = serde_json::from_value(value.clone())?;
    covered(value, &serde_json::to_value(&object)?, "")?;
    Ok(object)
}

fn covered(written: &Value, known: &Value, at: &str) -> Result<()> {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written {
                let at = format!("{at}.{key}");
                let known = known
                    .get(key)
                    .with_context(|| format!("unknown key {at}"))?;
                covered(value, known, &at)?;
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            ensure!(written.len() == known.len(), "{at}");
            for (written, known) in written.iter().zip(known) {
                covered(written, known, at)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Renders the objects of a kustomization. Returns `None`, and reports the test as skipped, without
/// a kubectl that supports kustomize's components (1.24 and later). Such a kubectl prints the
/// version of kustomize.
pub fn kustomized(directory: &Path) -> Result<Option<Vec<Value>>> {
    static SUPPORTS_COMPONENTS: OnceLock<bool> = OnceLock::new();
    let supports_components = SUPPORTS_COMPONENTS.get_or_init(|| {
        let version = Captured::run(Command::new("kubectl").args(["version", "--client"]));
        version.is_ok_and(|version| version.stdout.contains("Kustomize Version"))
    });
    if !supports_components {
        skip::report("rendered manifests", "needs kubectl 1.24 or later");
        return Ok(None);
    }
    let rendered = Captured::run(Command::new("kubectl").arg("kustomize").arg(directory))?;
    documents(&rendered.success()?.stdout).map(Some)
}

/// Renders the chart with these values, and returns the output of Helm. Returns `None`, and reports
/// the test as skipped, without Helm.
pub fn helm(values: &Value) -> Result<Option<Output>> {
    render_release("boathook", values, &repository("deploy/helm"))
}

fn render_release(release: &str, values: &Value, chart: &Path) -> Result<Option<Output>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), values.to_string())?;
    let mut helm = Command::new(repository("scripts/helm-template"));
    let output = helm.arg(file.path()).arg(release).arg(chart).output()?;
    if output.status.code() == Some(LACKS_PROGRAM) {
        skip::report("the Helm chart", "needs helm, or scripts/install-helm");
        return Ok(None);
    }
    Ok(Some(output))
}

/// Renders the objects of the chart with these values. Returns `None` without Helm.
pub fn chart(values: &Value) -> Result<Option<Vec<Value>>> {
    chart_as("boathook", values)
}

/// Renders the objects of the chart with these values for a release with this name.
pub fn chart_as(release: &str, values: &Value) -> Result<Option<Vec<Value>>> {
    match render_release(release, values, &repository("deploy/helm"))? {
        Some(output) => rendered_objects(values, output).map(Some),
        None => Ok(None),
    }
}

/// Renders the objects of a copy of the chart in which `file` has the text `text`.
pub fn chart_with_file(values: &Value, file: &str, text: &str) -> Result<Option<Vec<Value>>> {
    match helm_with_file(values, file, text)? {
        Some(output) => rendered_objects(values, output).map(Some),
        None => Ok(None),
    }
}

/// Returns the output of Helm for a copy of the chart in which `file` has the text `text`.
pub fn helm_with_file(values: &Value, file: &str, text: &str) -> Result<Option<Output>> {
    let directory = tempfile::tempdir()?;
    let chart = directory.path().join("helm");
    let mut copy = Command::new("cp");
    copy.arg("-rL").arg(repository("deploy/helm")).arg(&chart);
    ensure!(copy.status()?.success(), "{copy:?}");
    std::fs::write(chart.join(file), text)?;
    render_release("boathook", values, &chart)
}

fn rendered_objects(values: &Value, output: Output) -> Result<Vec<Value>> {
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{values}: {problem}");
    documents(&String::from_utf8(output.stdout)?)
}

/// Returns the first of these values that the chart accepts, although it should refuse all of them.
pub fn accepted(wrong: &[Value]) -> Result<Option<&Value>> {
    for values in wrong {
        match helm(values)? {
            None => return Ok(None),
            Some(output) if output.status.success() => return Ok(Some(values)),
            Some(_) => {}
        }
    }
    Ok(None)
}

/// Validates objects by the schemas of Kubernetes from version `oldest` to the newest that is known.
/// Returns the problems, one line for each. Returns `None`, and the test is skipped, without the
/// schemas.
pub fn validate(objects: &[Value], oldest: &str) -> Result<Option<Result<(), String>>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), serde_json::to_string(objects)?)?;
    let mut script = Command::new(repository("scripts/validate-manifests"));
    let output = script.arg(file.path()).arg(oldest).output()?;
    let text = String::from_utf8(output.stdout)?;
    match output.status.code() {
        Some(LACKS_PROGRAM) => {
            skip::report("Kubernetes' schemas", "needs scripts/install-schemas");
            Ok(None)
        }
        Some(0) => Ok(Some(Ok(()))),
        Some(1) if !text.is_empty() => Ok(Some(Err(text))),
        _ => bail!("{}", String::from_utf8_lossy(&output.stderr)),
    }
}
