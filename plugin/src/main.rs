//! `boathook-plugin`: see the crate `plugin`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use command_line::{FAILURE, print, print_json};
use device_class::config::Config;
use device_class::name::ClassName;
use host_inventory::host_program;
use plugin::cli::{Cli, Command, Run};
use plugin::{Listing, panic_hook};

fn main() -> ExitCode {
    let cli: Cli = command_line::parse();
    let json = matches!(cli.command, Some(Command::List { json: true, .. }));
    let result = match cli.command {
        None => run(cli.run),
        Some(Command::Run(options)) => run(options),
        Some(Command::List {
            classes,
            config,
            host_root,
            kubelet_dir,
            json,
        }) => list(
            &classes,
            config.as_deref(),
            host_root.as_deref(),
            &kubelet_dir,
            json,
        ),
        Some(Command::CheckEngine { host_root, socket }) => {
            check_engine(&host_root, socket.as_deref())
        }
        Some(Command::InRoot(given)) => {
            let error = host_program::enter(&given.root, &given.program, &given.arguments);
            let message = format!("cannot run {}: {error}", given.program.display());
            command_line::warn("boathook-plugin", &message);
            Ok(ExitCode::from(host_program::NOT_RUN))
        }
    };
    result.unwrap_or_else(|error| {
        command_line::report("boathook-plugin", &format!("{error:#}"), json);
        ExitCode::from(FAILURE)
    })
}

fn list(
    classes: &[ClassName],
    config: Option<&Path>,
    host_root: Option<&Path>,
    kubelet: &Path,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut config = Config::load(config).context("configuration")?;
    if let Some(root) = host_root {
        config = config.mounted_at(root);
    }
    let listing = Listing::of(&config, kubelet, classes)?;
    match json {
        true => print_json(&listing.json())?,
        false => print(&listing.table())?,
    }
    for problem in &listing.problems {
        command_line::warn("boathook-plugin", &format!("left out: {problem}"));
    }
    Ok(ExitCode::from(u8::from(!listing.problems.is_empty())))
}

fn check_engine(host_root: &Path, socket: Option<&Path>) -> anyhow::Result<ExitCode> {
    let engines = block_on(plugin::check_engine(host_root, socket))?;
    print(&format!(
        "CDI annotations work with {}\n",
        engines.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn run(options: Run) -> anyhow::Result<ExitCode> {
    options.log.start();
    panic_hook::abort_on_panic();
    block_on(plugin::run(options))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs until the future ends.
fn block_on<T, E>(service: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(service);
    // A device scan may hang in a driver: do not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(result?)
}
