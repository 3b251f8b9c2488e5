//! Plans the files for a containerd whose administrator edits the main configuration file. The
//! parent module describes which file is changed, and why.

use std::path::{Path, PathBuf};

use super::handler::{Handler, refuse_existing_handlers};
use super::schema::{self, SCHEMA_V2, SCHEMA_V3};
use super::{PlanInputs, boathook_drop_in_path, build_drop_in, documents, in_place};
use crate::drop_in;
use crate::error::Error;
use crate::toml_text::{add_to_list, format_managed_file, quote};

/// Returns the path and the text of each file that an installation writes: the drop-in, the main
/// file, or both.
pub(super) fn plan_files(
    main_path: &Path,
    conf_d_dir: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let Some(text) = inputs.snapshot.get_text(main_path) else {
        return plan_without_main_file(main_path, conf_d_dir, inputs);
    };
    let schema = schema::detect_schema(inputs.snapshot, main_path)?;
    let config_paths = documents::list_files_in_load_order(inputs.snapshot, main_path)?;
    let (Some(schema), Some(dir)) = (schema.filter(|schema| schema.merges_imports()), conf_d_dir)
    else {
        return in_place::plan_files(main_path, schema, &config_paths, inputs)
            .map(|file| vec![file]);
    };
    refuse_existing_handlers(schema, &config_paths, inputs)?;
    // The drop-in is written first. containerd does not read it before the main file imports it.
    let mut files = vec![build_drop_in(dir, schema, &config_paths, inputs)?];
    let path = boathook_drop_in_path(dir);
    if !documents::imports_file(main_path, text, &path)? {
        let edited_text = add_to_list(main_path, text, "imports", &path.to_string_lossy())?;
        files.push((main_path.into(), edited_text));
    }
    Ok(files)
}

/// Plans the files for a host without a main file. On such a host containerd uses its defaults.
///
/// Every containerd from 1.3 on reads a main file of version 2, but such a file cannot import
/// drop-ins of version 3. If the host has a drop-in of version 3, its containerd is a 2.x. The new
/// main file then has version 3 and imports all files of the drop-in directory.
fn plan_without_main_file(
    main_path: &Path,
    conf_d_dir: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let config_paths = conf_d_dir
        .map(|dir| drop_in::list_files_in_load_order(inputs.snapshot, &[], dir))
        .unwrap_or_default();
    for path in &config_paths {
        let (Some(&SCHEMA_V3), Some(dir)) =
            (schema::detect_schema(inputs.snapshot, path)?, conf_d_dir)
        else {
            continue;
        };
        refuse_existing_handlers(&SCHEMA_V3, &config_paths, inputs)?;
        let imports = quote(&dir.join("*.toml").to_string_lossy());
        let body = format!("version = 3\nimports = [{imports}]\n");
        let own_drop_in = build_drop_in(dir, &SCHEMA_V3, &config_paths, inputs)?;
        return Ok(vec![
            own_drop_in,
            (main_path.into(), format_managed_file(&body)),
        ]);
    }
    let handler = Handler::new(&SCHEMA_V2, &[], inputs)?;
    let tables =
        handler.format_tables() + &handler.format_runc_table() + &handler.format_default_table();
    Ok(vec![(
        main_path.into(),
        format_managed_file(&format!("version = 2\n\n{tables}")),
    )])
}
