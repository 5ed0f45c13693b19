//! The catalog of datasets that is in our own database.

use super::worker::parse_site;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
A dataset is a set of files with the events that are in them, in which luminosity sections of which runs, and where they
are. Requests read datasets, and their outputs are registered as such.

Examples:
  windlass catalog add data/ as /Muons/Run3-v1/RAW
  windlass catalog add 'data/*.root' as /Muons/Run3-v1/RAW --events 1200 --site T1_Here --site T2_There
  windlass catalog                            which datasets there are
  windlass catalog show /Muons/Run3-v1/RAW    what is in one, and where
  windlass catalog import muons.json          what another catalog knows")]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<CatalogSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogSubcommand {
    /// Add files that are here to a dataset, with what is in them.
    Add(CatalogAddArgs),
    /// List datasets.
    List(ListDatasetsArgs),
    /// Show what is in a dataset, and where.
    #[command(alias = "get")]
    Show(ShowDatasetArgs),
    /// Take over datasets from a JSON file.
    Import(ImportDatasetArgs),
    /// Forget a dataset. Its files stay where they are.
    #[command(alias = "delete")]
    Forget(CatalogForgetArgs),
}

/// Where the number of events of a file comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventCountSourceArg {
    /// The file is a text with one event per line: `run lumi event`, then anything.
    #[default]
    Events,
    /// Every line is an event; nothing is known of runs and luminosity sections.
    Lines,
    /// The file counts as one event.
    None,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Directories are searched through, hidden files left out. Files are read once, for their size, checksum and events. Adding
the same files again changes nothing; files that have changed are noted as they are now.")]
pub(crate) struct CatalogAddArgs {
    /// Directories, files, or patterns with `*` and `?` in quotes; then `as` and the name of the dataset.
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
    /// The dataset, if it is not said with `as`: /primary/processed/tier.
    #[arg(long, value_name = "DATASET")]
    pub(crate) dataset: Option<String>,
    /// A site where the files are, under the same path; give it again for more.
    #[arg(id = "at_site", long = "site", value_name = "SITE", default_value = "local", value_parser = parse_site)]
    pub(crate) sites: Vec<String>,
    /// So many events are in each file; nothing is counted.
    #[arg(long, value_name = "N", conflicts_with = "events_from")]
    pub(crate) events: Option<u64>,
    /// How the events of a file are counted.
    #[arg(long, value_enum, value_name = "HOW", default_value = "events")]
    pub(crate) events_from: EventCountSourceArg,
    /// What the logical names of the files begin with; `/store/local` and the name of the dataset by default.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) lfn_prefix: Option<String>,
    /// Say what would be added, and add nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListDatasetsArgs {
    /// Only those whose name is like this; `*` stands for anything.
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowDatasetArgs {
    /// The name of the dataset: /primary/processed/tier.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    /// List its files; as JSON, what `catalog import` reads.
    #[arg(long)]
    pub(crate) files: bool,
    /// List its blocks.
    #[arg(long, conflicts_with = "files")]
    pub(crate) blocks: bool,
    /// Files that were made invalid too.
    #[arg(long, requires = "files")]
    pub(crate) invalid: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file holds one dataset or a list of them, as `windlass catalog show DATASET --files --format json` prints one:
  {\"dataset\": \"/A/B/C\", \"files\": [{\"lfn\": \"/store/a\", \"size\": 9, \"events\": 2,
    \"lumis\": [{\"run\": 1, \"lumi\": 7, \"events\": 2}], \"replicas\": {\"T1_Here\": \"/data/a\"}}]}")]
pub(crate) struct ImportDatasetArgs {
    /// The JSON file; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CatalogForgetArgs {
    /// The name of the dataset.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    #[command(flatten)]
    pub(crate) confirm: super::list_options::ConfirmArgs,
}
