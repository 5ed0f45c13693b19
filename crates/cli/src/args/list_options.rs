//! Options of all lists: page, order, fields; and the confirmation of changes.

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "List options")]
pub(crate) struct ListPageArgs {
    /// Maximum number of entries.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Number of entries to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
    /// Field to sort by, as named in `--format json`. Default: the order of the list, usually by id.
    #[arg(long, value_name = "FIELD")]
    pub(crate) sort_by: Option<String>,
    /// Reverse the order.
    #[arg(long, visible_alias = "reverse")]
    pub(crate) reverse_sort: bool,
    /// Leave out this field; repeat for more.
    #[arg(short = 'x', long, value_name = "FIELD")]
    pub(crate) exclude: Vec<String>,
}

impl ListPageArgs {
    /// Whether all entries must be loaded before the first can be printed.
    pub(crate) fn is_rearranged(&self) -> bool {
        self.sort_by.is_some() || self.reverse_sort
    }
}

/// For commands that destroy or change something.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ConfirmArgs {
    /// Do not ask for confirmation; required if the input is not a terminal.
    #[arg(short, long, visible_alias = "no-prompts")]
    pub(crate) yes: bool,
    /// Show what would be done without doing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
