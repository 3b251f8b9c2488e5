//! Plans the files of a containerd whose main configuration file the administrator edits, with
//! or without drop-ins. The parent module describes which file is changed, and why.

use std::path::{Path, PathBuf};

use super::handler::{Handler, refuse_existing_handlers};
use super::schema::{self, V2, V3};
use super::{PlanInputs, documents, drop_in as own_file, in_place, own_drop_in};
use crate::drop_in;
use crate::error::Error;
use crate::toml_text::{add_to_list, quote, whole_file};

pub(super) fn plan_files(
    main: &Path,
    conf_d: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let Some(text) = inputs.base.text(main) else {
        return plan_without_main_file(main, conf_d, inputs);
    };
    let schema = schema::detect_schema(inputs.base, main)?;
    let config_files = documents::in_load_order(inputs.base, main)?;
    let (Some(schema), Some(dir)) = (schema.filter(|s| s.merges_imports()), conf_d) else {
        return in_place::plan_files(main, schema, &config_files, inputs).map(|file| vec![file]);
    };
    refuse_existing_handlers(schema, &config_files, inputs)?;
    // The drop-in is written first. containerd does not read it until the main file imports it.
    let mut files = vec![own_file(dir, schema, &config_files, inputs)?];
    let path = own_drop_in(dir);
    if !documents::imports(main, text, &path)? {
        let edited = add_to_list(main, text, "imports", &path.to_string_lossy())?;
        files.push((main.into(), edited));
    }
    Ok(files)
}

/// Plans the files for a host without a main file, whose containerd uses its defaults.
///
/// All releases from 1.3 on read a main file of version 2, but such a file cannot import
/// drop-ins of version 3. If there are drop-ins of version 3, containerd is a 2.x, and the new
/// main file has version 3 and imports the whole drop-in directory.
fn plan_without_main_file(
    main: &Path,
    conf_d: Option<&Path>,
    inputs: &PlanInputs<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let config_files = conf_d
        .map(|dir| drop_in::in_order(inputs.base, &[], dir))
        .unwrap_or_default();
    for path in &config_files {
        let (Some(&V3), Some(dir)) = (schema::detect_schema(inputs.base, path)?, conf_d) else {
            continue;
        };
        refuse_existing_handlers(&V3, &config_files, inputs)?;
        let imports = quote(&dir.join("*.toml").to_string_lossy());
        let body = format!("version = 3\nimports = [{imports}]\n");
        let own = own_file(dir, &V3, &config_files, inputs)?;
        return Ok(vec![own, (main.into(), whole_file(&body))]);
    }
    let handler = Handler::new(&V2, &[], inputs)?;
    let tables = handler.tables() + &handler.runc_table() + &handler.default_table();
    Ok(vec![(
        main.into(),
        whole_file(&format!("version = 2\n\n{tables}")),
    )])
}
