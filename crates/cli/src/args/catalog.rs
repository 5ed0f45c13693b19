//! The dataset catalog in this database.

use super::worker::parse_site;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
A dataset is a set of files with their events, luminosity sections, runs and locations. Requests read datasets, and their \
outputs are registered as datasets.

Examples:
  windlass catalog add data/ as /Muons/Run3-v1/RAW
  windlass catalog add 'data/*.root' as /Muons/Run3-v1/RAW --events 1200 --site T1_Here --site T2_There
  windlass catalog                            list the datasets
  windlass catalog show /Muons/Run3-v1/RAW    show the content and locations of a dataset
  windlass catalog import muons.json          import datasets of another catalog")]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<CatalogSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogSubcommand {
    /// Add local files to a dataset, with their events.
    Add(CatalogAddArgs),
    /// List datasets.
    List(ListDatasetsArgs),
    /// Show the content and locations of a dataset.
    #[command(alias = "get")]
    Show(ShowDatasetArgs),
    /// Import datasets from a JSON file.
    Import(ImportDatasetArgs),
    /// Remove a dataset from the catalog; its files are kept.
    #[command(alias = "delete")]
    Forget(CatalogForgetArgs),
}

/// Method of counting the events of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventCountSourceArg {
    /// One event per line of a text file: `run lumi event`, then anything.
    #[default]
    Events,
    /// One event per line; runs and luminosity sections are unknown.
    Lines,
    /// One event per file.
    None,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Directories are searched recursively without hidden files. Each file is read once for its size, checksum and events. \
Adding the same files again changes nothing; changed files are updated.")]
pub(crate) struct CatalogAddArgs {
    /// Directories, files, or quoted patterns with `*` and `?`; then `as` and the name of the dataset.
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
    /// Name of the dataset if not given with `as`: /primary/processed/tier.
    #[arg(long, value_name = "DATASET")]
    pub(crate) dataset: Option<String>,
    /// Site where the files are, under the same path; repeat for more.
    #[arg(id = "at_site", long = "site", value_name = "SITE", default_value = "local", value_parser = parse_site)]
    pub(crate) sites: Vec<String>,
    /// Number of events in each file, instead of counting them.
    #[arg(long, value_name = "N", conflicts_with = "events_from")]
    pub(crate) events: Option<u64>,
    /// Method of counting the events of a file.
    #[arg(long, value_enum, value_name = "METHOD", default_value = "events")]
    pub(crate) events_from: EventCountSourceArg,
    /// Prefix of the logical file names. Default: `/store/local` and the name of the dataset.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) lfn_prefix: Option<String>,
    /// Show what would be added without adding it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListDatasetsArgs {
    /// Only datasets whose name matches this pattern; `*` matches anything.
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowDatasetArgs {
    /// Name of the dataset: /primary/processed/tier.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    /// List its files; `--format json` prints them in the format that `catalog import` reads.
    #[arg(long)]
    pub(crate) files: bool,
    /// List its blocks.
    #[arg(long, conflicts_with = "files")]
    pub(crate) blocks: bool,
    /// Include invalidated files.
    #[arg(long, requires = "files")]
    pub(crate) invalid: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file contains a dataset or a list of datasets, as `windlass catalog show DATASET --files --format json` prints them:
  {\"dataset\": \"/A/B/C\", \"files\": [{\"lfn\": \"/store/a\", \"size\": 9, \"events\": 2,
    \"lumis\": [{\"run\": 1, \"lumi\": 7, \"events\": 2}], \"replicas\": {\"T1_Here\": \"/data/a\"}}]}")]
pub(crate) struct ImportDatasetArgs {
    /// JSON file; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CatalogForgetArgs {
    /// Name of the dataset.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    #[command(flatten)]
    pub(crate) confirm: super::list_options::ConfirmArgs,
}
