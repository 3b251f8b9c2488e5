//! Runs a real container with the hook and compares the devices in it with the plan.

use std::path::Path;

use anyhow::{Context, Result, bail};
use harness::alias_device::AliasDevice;
use harness::cgroup_parent::CgroupParent;
use harness::cgroup_view::CgroupView;
use harness::demo_host::in_container::{self, node};
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::kubelet::Allocated;
use harness::leftovers;
use harness::loader::{self, Loaded};
use harness::node::Node;
use harness::probe::{Access, Kind, PathReport, Report};
use harness::rootfs::Rootfs;
use harness::runc::{Container, Runc};

use crate::comparison::{Comparison, Row};
use crate::plan::Plan;
use crate::{ALLOCATED, step};

/// The text of the table for an object that is not requested or not planned.
const NOTHING: &str = "-";
/// The text of the table for a device node that does not exist in the container.
const NO_NODE: &str = "no node";

/// Starts a container with the allocated devices and prints the comparison. Fails if anything
/// differs from the request, or if anything of the container is left after its deletion.
pub(crate) fn show(
    host: &DemoHost,
    node: &Node,
    allocated: &Allocated,
    view: CgroupView,
) -> Result<()> {
    let parent = CgroupParent::new();
    let bundle = node.container(Rootfs::Glibc, allocated, &parent)?.build()?;
    let plan = Plan::explain(&host.config_file(), bundle.directory())?;
    let runc = Runc::new(view)?;
    let container = runc
        .create(&bundle)
        .with_context(|| format!("the hook's log: {}", host.log()))?;
    container.start()?;
    step(
        "runc",
        &format!("started a container with the hook on {view}"),
    );

    let comparison = compare(host, &plan, &container)?;
    print!("{comparison}");
    drop(container);
    let mut differences = comparison.differences();
    differences.extend(
        leftovers::find_leftovers(&runc, &bundle)?
            .into_iter()
            .map(|left| format!("left behind: {left}")),
    );
    if !differences.is_empty() {
        bail!("on {view}: {}", differences.join("; "));
    }
    Ok(())
}

fn compare(host: &DemoHost, plan: &Plan, container: &Container<'_>) -> Result<Comparison> {
    let other = host.device(DemoHost::UNLIKE);
    let refused = Path::new("/dev/made-inside");
    let questions = in_container::questions().new_node(refused, other.major, other.minor);
    let report = container.probe(&questions)?;

    let mut rows = Vec::new();
    for index in 0..DemoHost::NODES {
        rows.push(node_row(host, plan, &report, index)?);
    }
    rows.push(denied_row(&report, refused, other)?);
    rows.push(library_row(plan, container)?);
    Ok(Comparison(rows))
}

fn node_row(host: &DemoHost, plan: &Plan, report: &Report, index: usize) -> Result<Row> {
    let path = node(index);
    let device = host.device(index);
    let number = format!("c {}:{}", device.major, device.minor);
    let planned = plan
        .node(Path::new(&path))
        .map(|(major, minor)| format!("c {major}:{minor}"));
    let observed = describe(report.path(&path)?);
    let requested = ALLOCATED.contains(&index);
    let is_correct = if requested {
        planned.as_ref() == Some(&number) && observed == format!("{number}, opened")
    } else {
        planned.is_none() && observed == NO_NODE
    };
    Ok(Row {
        object: path,
        requested: if requested {
            format!("npu-{index}")
        } else {
            NOTHING.to_string()
        },
        planned: planned.unwrap_or(NOTHING.to_string()),
        observed,
        is_correct,
    })
}

/// Describes a file of the container for the table.
pub(crate) fn describe(observed: &PathReport) -> String {
    match (observed.kind, observed.number(), &observed.read) {
        (Kind::Missing, ..) => NO_NODE.to_string(),
        (Kind::CharacterDevice, Some((major, minor)), read) => {
            format!("c {major}:{minor}, {}", opened(read))
        }
        (kind, ..) => format!("{kind:?}"),
    }
}

fn opened(access: &Access) -> String {
    match access {
        Access::Granted => "opened".to_string(),
        Access::Refused(errno) => format!("refused: {errno}"),
    }
}

/// Returns the row for a device that was not allocated to the container: the container can create
/// its node by mknod(2) but must not be able to open it.
fn denied_row(report: &Report, path: &Path, device: AliasDevice) -> Result<Row> {
    let read = report.new_node(path)?.read.as_ref();
    Ok(Row {
        object: format!("mknod c {}:{}", device.major, device.minor),
        requested: NOTHING.to_string(),
        planned: NOTHING.to_string(),
        observed: read.map_or("not made".to_string(), opened),
        is_correct: read == Some(&Access::refused("EPERM")),
    })
}

fn library_row(plan: &Plan, container: &Container<'_>) -> Result<Row> {
    let library = VendorLibrary::dummy_npu();
    let printed = container.output(&loader::command(&[library.wanted()]))?;
    let planned = plan
        .library(&library.file_name())
        .map(|path| path.display().to_string());
    let (observed, is_right_version) = match loader::parse(&printed)?.into_iter().next() {
        Some(Loaded::Found { answer, .. }) => {
            (format!("version {answer}"), answer == library.version)
        }
        Some(Loaded::Failed { error, .. }) => (error, false),
        None => ("no answer".to_string(), false),
    };
    Ok(Row {
        object: format!("dlopen {}", library.soname()),
        requested: "with any NPU".to_string(),
        is_correct: planned.is_some() && is_right_version,
        planned: planned.unwrap_or(NOTHING.to_string()),
        observed,
    })
}
