//! Plans the files of a containerd whose main configuration file the administrator edits, with
//! or without drop-ins. The parent module describes which file is changed, and why.

use std::path::{Path, PathBuf};

use super::handler::{Handler, refuse_existing_handlers};
use super::schema::{self, V2, V3};
use super::{PlanInputs, build_drop_in, documents, in_place, own_drop_in_path};
use crate::drop_in;
use crate::error::Error;
use crate::toml_text::{add_to_list, format_managed_file, quote};

/// Returns the files that an installation writes, each as its path and text.
pub(super) fn plan_files(
    main_file: &Path,
    conf_d: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let Some(text) = inputs.snapshot.text(main_file) else {
        return plan_without_main_file(main_file, conf_d, inputs);
    };
    let schema = schema::detect_schema(inputs.snapshot, main_file)?;
    let config_files = documents::list_in_load_order(inputs.snapshot, main_file)?;
    let (Some(schema), Some(dir)) = (schema.filter(|schema| schema.merges_imports()), conf_d)
    else {
        return in_place::plan_files(main_file, schema, &config_files, inputs)
            .map(|file| vec![file]);
    };
    refuse_existing_handlers(schema, &config_files, inputs)?;
    // The drop-in is written first. containerd does not read it until the main file imports it.
    let mut files = vec![build_drop_in(dir, schema, &config_files, inputs)?];
    let path = own_drop_in_path(dir);
    if !documents::imports_file(main_file, text, &path)? {
        let edited = add_to_list(main_file, text, "imports", &path.to_string_lossy())?;
        files.push((main_file.into(), edited));
    }
    Ok(files)
}

/// Plans the files for a host without a main file, on which containerd uses its defaults.
///
/// All releases of containerd from 1.3 on read a main file of version 2, but such a file cannot
/// import drop-ins of version 3. If the host has a drop-in of version 3, its containerd is a 2.x.
/// Then the new main file has version 3 and imports the whole drop-in directory.
fn plan_without_main_file(
    main_file: &Path,
    conf_d: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let config_files = conf_d
        .map(|dir| drop_in::list_in_load_order(inputs.snapshot, &[], dir))
        .unwrap_or_default();
    for path in &config_files {
        let (Some(&V3), Some(dir)) = (schema::detect_schema(inputs.snapshot, path)?, conf_d) else {
            continue;
        };
        refuse_existing_handlers(&V3, &config_files, inputs)?;
        let imports = quote(&dir.join("*.toml").to_string_lossy());
        let body = format!("version = 3\nimports = [{imports}]\n");
        let own_drop_in = build_drop_in(dir, &V3, &config_files, inputs)?;
        return Ok(vec![
            own_drop_in,
            (main_file.into(), format_managed_file(&body)),
        ]);
    }
    let handler = Handler::new(&V2, &[], inputs)?;
    let tables =
        handler.format_tables() + &handler.format_runc_table() + &handler.format_default_table();
    Ok(vec![(
        main_file.into(),
        format_managed_file(&format!("version = 2\n\n{tables}")),
    )])
}
