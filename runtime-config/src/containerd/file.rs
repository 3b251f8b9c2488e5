//! A configuration file that its owner edits, with or without drop-ins. What
//! goes where, and why, is said in the parent module.

use std::path::{Path, PathBuf};

use super::handler::Handler;
use super::schema::{self, V2, V3};
use super::{Request, documents, drop_in, in_place, own_drop_in};
use crate::error::Error;
use crate::toml_text::{add_to_list, whole_file};

pub(super) fn desired(
    main: &Path,
    conf_d: Option<&Path>,
    request: &Request<'_>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let Some(text) = request.base.text(main) else {
        return absent(main, conf_d, request).map(|file| vec![file]);
    };
    let schema = schema::of(request.base, main)?;
    let known = documents::in_load_order(request.base, main)?;
    let (Some(schema), Some(dir)) = (schema.filter(|s| s.merges_imports()), conf_d) else {
        return in_place::desired(main, schema, &known, request).map(|file| vec![file]);
    };
    // The drop-in first: until it is imported, nothing reads it.
    let mut files = vec![drop_in(dir, schema, &known, request)?];
    let path = own_drop_in(dir);
    if !documents::imports(main, text, &path)? {
        let edited = add_to_list(main, text, "imports", &path.to_string_lossy())?;
        files.push((main.into(), edited));
    }
    Ok(files)
}

/// No main file: containerd runs on its defaults, which from 2.2 on import
/// conf.d. A new main file of version 2 is read by all versions, but forbids
/// drop-ins of version 3, so it is not made where there are any.
fn absent(
    main: &Path,
    conf_d: Option<&Path>,
    request: &Request<'_>,
) -> Result<(PathBuf, String), Error> {
    let in_use = |dir: &&Path| request.base.present().any(|(p, _)| p.parent() == Some(dir));
    if let Some(dir) = conf_d.filter(in_use) {
        return drop_in(dir, &V3, &[], request);
    }
    let handler = Handler::new(&V2, &[], request)?;
    let tables = handler.tables() + &handler.default_table();
    Ok((main.into(), whole_file(&format!("version = 2\n\n{tables}"))))
}
