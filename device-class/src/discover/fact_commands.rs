//! What programs that report facts are run for.

use std::collections::BTreeSet;

use super::search;
use crate::class::{FactsProgram, words};
use crate::host::HostView;
use crate::inserted;
use crate::template::Attributes;

/// As often as a program is run at most.
const MAX_RUNS: usize = 64;

/// The commands of a program, each with what is known of the path or the fact for which it is
/// run. `facts` are those of the programs before it.
pub fn fact_commands(
    program: &FactsProgram,
    facts: &[(String, String)],
    host: &dyn HostView,
) -> Vec<(Vec<String>, Attributes)> {
    let known = match (&program.for_each, &program.for_each_fact) {
        (Some(pattern), _) => {
            let found = search::matches(pattern, &Attributes::new(), host, MAX_RUNS);
            let found = found.unwrap_or_default().into_iter();
            found.map(|found| found.attributes).collect()
        }
        (None, Some(wanted)) => {
            let values = facts.iter().filter(|(key, _)| key == wanted);
            let values: BTreeSet<&str> = inserted(values.map(|(_, value)| value.as_str()));
            let named = |value: &str| {
                let given = value.split(' ').map(str::to_owned);
                words().zip(given).collect::<Attributes>()
            };
            values.into_iter().take(MAX_RUNS).map(named).collect()
        }
        (None, None) => vec![Attributes::new()],
    };
    let command = |known: Attributes| {
        let texts = program.program.iter().map(|text| text.fill(&known));
        // Of a fact with fewer words than the program needs, nothing can be asked.
        Some((texts.collect::<Result<_, _>>().ok()?, known))
    };
    known.into_iter().filter_map(command).collect()
}
