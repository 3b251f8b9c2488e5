//! `boathook-dist`: makes the files of a release other than the programs. `scripts/dist` calls
//! it. The same sources give the same bytes.

#![allow(
    clippy::disallowed_methods,
    reason = "it runs where a release is built"
)]

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;

mod blobs;
mod chart;
mod completions;
mod components;
mod documents;
mod image;
mod layout;
mod linked;
mod manual;
mod notes;
mod registry;
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
    /// Print a document for go-md2man, with its tables as lists of definitions
    ManualSource {
        /// The document
        file: PathBuf,
    },
    /// Give the manual pages below DIR a date, and remove what mandoc rejects
    CleanManual {
        /// The directory with the sections, such as share/man
        dir: PathBuf,
        /// The date, as in 2026-11-21
        #[arg(long)]
        date: String,
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
        /// The programs
        #[arg(long)]
        set: linked::ProgramSet,
        /// The target of the programs
        #[arg(long)]
        target: String,
        /// When they were made, as in 2026-11-21T18:00:00Z
        #[arg(long)]
        created: String,
    },
    /// Write an image archive that `ctr images import` and `docker load` read
    Image {
        /// The archive's contents, to be packed as they are
        dir: PathBuf,
        /// The description of the image.
        #[command(flatten)]
        image: image::ImageDescription,
    },
    /// Check the layout of an image of a release, and print the image's digest
    CheckImage(layout::ExpectedImage),
    /// Write a packed Helm chart as an OCI layout, and print its digest
    Chart {
        /// The directory of the layout
        dir: PathBuf,
        /// The chart.
        #[command(flatten)]
        chart: chart::PackedChart,
    },
    /// Check the name of a registry, below which a release is published
    CheckRegistry {
        /// The registry, such as registry.example/boathook
        registry: registry::RegistryName,
    },
    /// Print the section of a version in a changelog
    Notes {
        /// The changelog
        file: PathBuf,
        /// The version
        #[arg(long)]
        version: String,
        /// Refuse a section whose heading has no date
        #[arg(long = "final")]
        is_final: bool,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Documents { dir } => {
            documents::write(&dir)?;
            // The current directory is the top of the source tree, as for cargo.
            texts::write(Path::new("."), &dir)
        }
        Command::ManualSource { file } => {
            print!(
                "{}",
                manual::convert_tables(&std::fs::read_to_string(file)?)
            );
            Ok(())
        }
        Command::CleanManual { dir, date } => manual::clean_pages(&dir, &date),
        Command::Licenses { file, target } => components::write_licenses(&file, &target),
        Command::Sbom {
            file,
            set,
            target,
            created,
        } => components::write_sbom(&file, set, &target, &created),
        Command::Image { dir, image } => image::write(&dir, &image),
        Command::CheckImage(expected) => {
            println!("{}", layout::check_image(&expected)?);
            Ok(())
        }
        Command::Chart { dir, chart } => {
            println!("{}", chart::write_layout(&dir, &chart)?);
            Ok(())
        }
        Command::CheckRegistry { registry } => {
            println!("{registry}");
            Ok(())
        }
        Command::Notes {
            file,
            version,
            is_final,
        } => {
            let changelog = std::fs::read_to_string(file)?;
            print!("{}", notes::cut_notes(&changelog, &version, is_final)?);
            Ok(())
        }
    }
}
