//! Builds the command lines of the programs that report driver facts.

use std::collections::BTreeSet;

use super::search;
use crate::class::{FactsProgram, words};
use crate::host::HostView;
use crate::inserted;
use crate::template::Attributes;

/// The maximum number of commands for one program. Further paths and facts are ignored.
const MAX_RUNS: usize = 64;

/// Returns the commands of a program: one for each path that matches `for_each`, or for each
/// value of `for_each_fact`, or a single one. Each command comes with the attributes that were
/// filled into it. `facts` are the facts that earlier programs reported.
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
        // An argument may use a word of the fact, such as `{2}`, that this value does not have. Then
        // there is no command for the value.
        Some((texts.collect::<Result<_, _>>().ok()?, known))
    };
    known.into_iter().filter_map(command).collect()
}
