//! What every list understands: how much of it, in which order, without which columns. And how a change is confirmed.

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which part of the list")]
pub(crate) struct ListPageArgs {
    /// List at most this many.
    #[arg(short, long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Leave out this many at the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u64,
    /// Sort by this field instead of by id; any field of `--format json` will do.
    #[arg(long, value_name = "FIELD")]
    pub(crate) sort_by: Option<String>,
    /// The other way round.
    #[arg(long, visible_alias = "reverse")]
    pub(crate) reverse_sort: bool,
    /// Leave out this field; give it again for more.
    #[arg(short = 'x', long, value_name = "FIELD")]
    pub(crate) exclude: Vec<String>,
}

impl ListPageArgs {
    /// Whether the list must be known as a whole before its first line can be printed.
    pub(crate) fn is_rearranged(&self) -> bool {
        self.sort_by.is_some() || self.reverse_sort
    }
}

/// For commands that destroy or change something that was asked for by name only.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ConfirmArgs {
    /// Do not ask; needed where nobody can be asked.
    #[arg(short, long, visible_alias = "no-prompts")]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
