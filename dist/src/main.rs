//! `boathook-dist`: makes the files of a release other than the programs. `scripts/dist` calls
//! it. The same sources give the same bytes.

#![allow(
    clippy::disallowed_methods,
    reason = "it runs where a release is built"
)]

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;

mod completions;
mod components;
mod documents;
mod image;
mod texts;

/// Makes what a release holds in addition to the programs
#[derive(Debug, Parser)]
#[command(name = "boathook-dist")]
enum Command {
    /// Write manual pages, shell completions and the source tree's documents into DIR
    Documents {
        /// The directory of the release
        dir: PathBuf,
    },
    /// Write the licences of all components that are linked into the programs
    Licenses {
        /// The file to write
        file: PathBuf,
        /// The target of the programs
        #[arg(long)]
        target: String,
    },
    /// Write the list of components (SBOM) in the format CycloneDX 1.5
    Sbom {
        /// The file to write
        file: PathBuf,
        /// The target of the programs
        #[arg(long)]
        target: String,
    },
    /// Write an image archive that `ctr images import` and `docker load` read
    Image {
        /// The archive's contents, to be packed as they are
        dir: PathBuf,
        /// The image's name with its tag
        #[arg(long)]
        name: String,
        /// A platform and its layer, such as amd64=layer.tar; the first is the one of
        /// `docker load`
        #[arg(long = "layer", required = true, value_parser = image::layer)]
        layers: Vec<image::Layer>,
        /// The program to run
        #[arg(long)]
        entrypoint: String,
        /// When it was created, as in 2026-11-21T18:00:00Z
        #[arg(long)]
        created: String,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Documents { dir } => {
            documents::write(&dir)?;
            // The current directory is the top of the source tree, as for cargo.
            texts::write(Path::new("."), &dir)
        }
        Command::Licenses { file, target } => components::write_licenses(&file, &target),
        Command::Sbom { file, target } => components::write_sbom(&file, &target),
        Command::Image {
            dir,
            name,
            layers,
            entrypoint,
            created,
        } => image::write(&dir, &name, &layers, &entrypoint, &created),
    }
}
