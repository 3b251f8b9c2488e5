//! Warns if the configuration has `trusted_pods` but no engine calls the hook for these pods.

use device_class::config::Config;

/// Returns a warning if the configuration has `trusted_pods`. With CDI an engine calls the hook
/// only for containers to which a device was allocated or that name a device in an annotation. The
/// pods of `trusted_pods` usually request devices only by a variable. They would start without
/// devices and without a message.
pub(crate) fn build_cdi_warning(config: &Config) -> Option<String> {
    let classes = config.class.iter();
    let trusting_classes = classes.filter(|(_, settings)| !settings.trusted_pods.is_empty());
    let class_tables = trusting_classes.map(|(name, _)| format!("[class.{name}]"));
    let trust_table = (!config.trust.trusted_pods.is_empty()).then(|| "[trust]".to_owned());
    let tables: Vec<String> = trust_table.into_iter().chain(class_tables).collect();
    (!tables.is_empty()).then(|| {
        format!(
            "trusted_pods in {} has no effect on pods that request devices by a variable: with CDI \
             no engine calls the hook for them. Let them request a resource, such as that of a \
             class for monitoring, or name devices in a CDI annotation, or use --delivery=handler",
            tables.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_warning_names_the_tables() {
        for (text, tables) in [
            ("", None),
            ("[trust]\ntrusted_pods = []", None),
            ("[trust]\ntrusted_pods = ['a']", Some("[trust]")),
            (
                "[trust]\ntrusted_pods = ['a']\n[class.x]\ntrusted_pods = ['b']\n[class.y]",
                Some("[trust], [class.x]"),
            ),
        ] {
            let config = Config::parse(Path::new("config.toml"), text).unwrap();
            let warning = build_cdi_warning(&config);
            let wanted = tables.map(|tables| format!("trusted_pods in {tables} has no effect"));
            match (warning, wanted) {
                (None, None) => {}
                (Some(warning), Some(wanted)) => assert!(warning.starts_with(&wanted), "{warning}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
