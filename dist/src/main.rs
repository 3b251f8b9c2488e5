//! The program `boathook-dist`. `scripts/dist` calls it to make all files of a release other than
//! the programs. The same sources always result in the same bytes.

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
mod signature;
mod texts;
mod vendored;

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
        /// The date of the manual pages, such as 2026-11-21
        #[arg(long)]
        date: String,
    },
    /// Write the licences of all components that are linked into the programs
    Licenses {
        /// The output file
        file: PathBuf,
        /// The Rust target triple of the programs
        #[arg(long)]
        target: String,
    },
    /// Write the list of components (SBOM) in the format CycloneDX 1.5
    Sbom {
        /// The output file
        file: PathBuf,
        /// The set of programs whose components are listed
        #[arg(long)]
        set: linked::ProgramSet,
        /// The Rust target triple of the programs
        #[arg(long)]
        target: String,
        /// The time at which the programs were built, such as 2026-11-21T18:00:00Z
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
    /// Print the bytes whose signature is that of an image
    SignaturePayload(signature::SignedImage),
    /// Write the signature of an image as an OCI layout in the form of cosign, and print its tag
    Signature {
        /// The directory of the layout
        dir: PathBuf,
        /// The signature.
        #[command(flatten)]
        signature: signature::ImageSignature,
    },
    /// Remove compiled files, and crates that Linux does not compile, from the directory of `cargo
    /// vendor --versioned-dirs`
    PruneVendored {
        /// The directory
        dir: PathBuf,
        /// The Rust target triples for which crates are kept
        #[arg(long = "target", required = true)]
        targets: Vec<String>,
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
        requires_date: bool,
    },
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Documents { dir } => {
            documents::write_manuals_and_completions(&dir)?;
            // The current directory must be the top of the source tree.
            texts::write_documents(Path::new("."), &dir)
        }
        Command::ManualSource { file } => {
            print!(
                "{}",
                manual::convert_tables(&std::fs::read_to_string(file)?)
            );
            Ok(())
        }
        Command::CleanManual { dir, date } => manual::normalize_manual_pages(&dir, &date),
        Command::Licenses { file, target } => components::write_licenses(&file, &target),
        Command::Sbom {
            file,
            set,
            target,
            created,
        } => components::write_sbom(&file, set, &target, &created),
        Command::Image { dir, image } => image::write_layout(&dir, &image),
        Command::CheckImage(expected) => {
            println!("{}", layout::check_image(&expected)?);
            Ok(())
        }
        Command::SignaturePayload(image) => signature::print_payload(&image),
        Command::Signature { dir, signature } => {
            println!("{}", signature::write_layout(&dir, &signature)?);
            Ok(())
        }
        Command::Chart { dir, chart } => {
            println!("{}", chart::write_layout(&dir, &chart)?);
            Ok(())
        }
        Command::PruneVendored { dir, targets } => vendored::prune_crates(&dir, &targets),
        Command::CheckRegistry { registry } => {
            println!("{registry}");
            Ok(())
        }
        Command::Notes {
            file,
            version,
            requires_date,
        } => {
            let changelog = std::fs::read_to_string(file)?;
            print!(
                "{}",
                notes::extract_notes(&changelog, &version, requires_date)?
            );
            Ok(())
        }
    }
}
