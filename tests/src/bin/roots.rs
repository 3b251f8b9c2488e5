//! `roots` builds the root file systems that take longest, those of newer engines and of hosts with
//! systemd, and fetches a kernel, while other tests already run. If one fails, the tests that need
//! it are skipped with the reason.

use anyhow::Result;
use harness::engine_root::Generation;
use harness::systemd_host::Distribution;
use harness::vm::Kernel;

fn main() {
    // The order in which the tests need them.
    let roots: [fn() -> Result<()>; 5] = [
        || Distribution::OfThisMachine.directory().map(drop),
        || Distribution::Ubuntu1804.directory().map(drop),
        || Generation::Forky.root().map(drop),
        || Generation::Resolute.root().map(drop),
        || Kernel::of_every_run().map_or(Ok(()), |kernel| kernel.version().map(drop)),
    ];
    for root in roots {
        if let Err(error) = root() {
            eprintln!("roots: {error:#}");
        }
    }
}
