//! Builds the command lines of the programs that report driver properties.

use std::collections::BTreeSet;

use super::search;
use crate::class::{PropertyProgram, list_word_attributes};
use crate::collect_by_insertion;
use crate::host::HostView;
use crate::template::Attributes;

/// The maximum number of times that one program is run. Further paths and properties are ignored.
const MAX_PROGRAM_RUNS: usize = 64;

/// Returns the command lines of a program, each with the attributes that were filled into it. There
/// is one for each path that matches `path_pattern`, or one for each value of the property
/// `input_property_key`. A program with neither key is run once. `properties` are the driver
/// properties that earlier programs have reported.
pub fn build_property_commands(
    program: &PropertyProgram,
    properties: &[(String, String)],
    host: &dyn HostView,
) -> Vec<(Vec<String>, Attributes)> {
    let attribute_sets = match (&program.path_pattern, &program.input_property_key) {
        (Some(pattern), _) => {
            let matches = search::find_matches(pattern, &Attributes::new(), host, MAX_PROGRAM_RUNS);
            let matches = matches.unwrap_or_default().into_iter();
            matches.map(|path_match| path_match.attributes).collect()
        }
        (None, Some(property_key)) => {
            let values = properties.iter().filter(|(key, _)| key == property_key);
            let values: BTreeSet<&str> =
                collect_by_insertion(values.map(|(_, value)| value.as_str()));
            let to_attributes = |value: &str| {
                let words = value.split(' ').map(str::to_owned);
                list_word_attributes().zip(words).collect::<Attributes>()
            };
            values
                .into_iter()
                .take(MAX_PROGRAM_RUNS)
                .map(to_attributes)
                .collect()
        }
        (None, None) => vec![Attributes::new()],
    };
    let to_command = |attributes: Attributes| {
        let arguments = program
            .command
            .iter()
            .map(|template| template.fill(&attributes));
        // An argument may contain a placeholder such as `{2}`, which stands for the second word of
        // the property's value. If the value has too few words, the command line is left out.
        Some((arguments.collect::<Result<_, _>>().ok()?, attributes))
    };
    attribute_sets.into_iter().filter_map(to_command).collect()
}
