//! Implements `boathook explain`, which prints the injection plan of a container and changes nothing.
//! The text of a plan is in `injection_plan::plan`.

use std::io::{self, Write};
use std::path::Path;

use device_class::class::disable_report_patterns;
use device_class::config::Config;
use device_class::load;
use hook::attachment;
use hook::exit::ExitCode;
use hook::log;
use hook::oci::Bundle;
use hook::planner::{self, Caller};
use host_files::printable::{EscapingWriter, OutputFormat};
use injection_plan::plan::{Grant, InjectionPlan, Note};

use crate::cli::Cli;
use crate::command::{CommandError, print_json};

/// Adds a warning for each requested class that has no device on this host, if other classes of the
/// same vendor have devices. The warning matters for a request for all devices, because the
/// container then starts without any device.
fn warn_about_other_classes(plan: &mut InjectionPlan, config: &Config) {
    let lacks_devices =
        |grant: &&Grant| grant.available_count == 0 && grant.awaited_devices.is_empty();
    let class_names = plan.grants.iter().filter(lacks_devices);
    let class_names: Vec<&str> = class_names.map(|grant| grant.class.as_str()).collect();
    let sources = load::read_each_source(&config.classes).unwrap_or_default();
    let all_sources = sources.iter().flatten();
    let requested_sources =
        all_sources.filter(|source| class_names.contains(&source.name.as_str()));
    let classes = requested_sources.filter_map(|source| config.class(source).ok());
    let descriptions = classes.filter_map(|class| planner::describe_other_classes(&class, config));
    plan.warnings.extend(descriptions);
}

/// Prints the injection plan for a bundle. Warns if config.json contains no Boathook hook, or does
/// not set variables that the plan needs. Changes nothing.
pub(super) fn explain_bundle(
    bundle_dir: &Path,
    cli: &Cli,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    let mut bundle = Bundle::read(bundle_dir)?;
    attachment::add_recorded_requests(&mut bundle, bundle_dir, &config.host_root);
    let plan = print_plan(&bundle, cli, config)?;
    let is_attached = |grant: &Grant| grant.grant_origin.is_user();
    let has_hook = bundle.hooks.find_boathook_hooks().next().is_some();
    if !has_hook && !plan.grants.iter().all(is_attached) {
        log::warning("config.json has no boathook hook; `boathook doctor` shows the fix");
    }
    if has_hook && !plan.env.is_empty() {
        let names: Vec<&str> = plan.env.keys().map(String::as_str).collect();
        log::warning(&format!(
            "config.json does not set {}, and a hook cannot: use boathook-runtime or CDI, or set \
             it yourself",
            names.join(", ")
        ));
    }
    Ok(ExitCode::Success)
}

/// Prints the injection plan that the hook would compute for a bundle, and returns it.
pub(super) fn print_plan(
    bundle: &Bundle,
    cli: &Cli,
    config: &Config,
) -> Result<InjectionPlan, CommandError> {
    disable_report_patterns();
    let mut plan = planner::plan_container_injection(bundle, &Caller::PlanInspector, config)?;
    warn_about_other_classes(&mut plan, config);
    if cli.is_json {
        print_json(&plan)?;
    } else {
        if !cli.is_verbose {
            plan.notes = plan
                .notes
                .iter()
                .map(|note| Note::Text(note.to_short_text()))
                .collect();
        }
        // Control characters are escaped, because the plan contains texts that the image's author
        // chose.
        write!(
            EscapingWriter::new(io::stdout().lock(), OutputFormat::Lines),
            "{plan}"
        )?;
    }
    Ok(plan)
}
