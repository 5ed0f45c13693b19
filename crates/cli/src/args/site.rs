//! Sites, where work units run, and how many requests may be under way at once.

use clap::{Args, Subcommand};
use std::time::Duration;
use windlass_types::requests::SiteStatus;
use windlass_types::{Timestamp, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
Operators make a site known with `site set`, or by starting a worker there: `windlass worker --site NAME`. A token of the
scope `worker` makes none known.

Examples:
  windlass site                                        which there are, and what they do
  windlass site drain T2_There --for 4h                it finishes what it has and gets nothing new
  windlass site enable T2_There                        it gets work again
  windlass site ban T2_There --for 1d --reason \"it loses files\"
  windlass site set T2_There --storage-path /data/there")]
pub(crate) struct SiteArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SiteSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SiteSubcommand {
    /// List all sites.
    List,
    /// Show all about a site, its bans too.
    #[command(alias = "get")]
    Show(OneSiteArgs),
    /// Have a site finish what it has, and get nothing new.
    Drain(SiteDrainArgs),
    /// Have a site get work again.
    Enable(OneSiteArgs),
    /// Have a site get no new work for a while; what it runs goes on.
    Ban(SiteBanArgs),
    /// List the bans of sites: what gets no work, since when, until when and why.
    Bans(SiteBansArgs),
    /// Lift the bans of a site.
    Unban(SiteUnbanArgs),
    /// Change what is known of a site, or make one known.
    Set(SiteSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneSiteArgs {
    /// The name of the site.
    #[arg(value_name = "SITE")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SiteDrainArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// Enabled again after this time by itself: `30m`, `2h`. Without it: by `windlass site enable`.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) spell: Option<Duration>,
    /// Enabled again at this time by itself.
    #[arg(long, value_name = "TIME", conflicts_with = "spell", value_parser = super::run::parse_time)]
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A ban that would leave no site, for all requests or for the one that is named, is refused: what has no place to go waits where
nobody sees why. `windlass site drain` lets a site finish what it has.")]
pub(crate) struct SiteBanArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// For this time: `30m`, `2h`.
    #[arg(long = "for", value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    pub(crate) spell: Duration,
    /// Only for work of this request.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Why, for whoever wonders.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A site is banned by a person, or by itself when too much of a request failed there; what three requests have banned is
banned for all. After seven days a ban is over.

Examples:
  windlass site bans                                   those that hold
  windlass site bans --request reco                    those that keep this request away
  windlass site bans --site T2_There --all             its history")]
pub(crate) struct SiteBansArgs {
    /// Only those of this site.
    #[arg(id = "ban_site", long = "site", value_name = "SITE")]
    pub(crate) site: Option<String>,
    /// Only those that hold for this request: its own, and those for all.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Also those that are over or were lifted.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SiteUnbanArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// Only those for work of this request.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SiteSetArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// `enabled`, `disabled`, `draining` or `maintenance`.
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    pub(crate) status: Option<SiteStatus>,
    /// How many jobs of one core it can run at once.
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u64>,
    /// The directory where it keeps files: the path of a file is this and its LFN.
    #[arg(long, value_name = "PATH")]
    pub(crate) storage_path: Option<String>,
    /// What its storage is called elsewhere.
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_element: Option<String>,
}

fn parse_status(text: &str) -> Result<SiteStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseNameError| error.to_string())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Requests wait in a queue: urgent ones first, then by priority; between equals places go round the requestors.

Examples:
  windlass request admission                        how many are under way, and who is next
  windlass request admission set --max-active 50    no more than 50 at once from now on")]
pub(crate) struct AdmissionArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<AdmissionSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdmissionSubcommand {
    /// Show how many requests are under way, and the queue.
    Show(AdmissionQueueArgs),
    /// Change how many may be under way at once.
    Set(AdmissionSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AdmissionQueueArgs {
    /// List at most this many of the queue.
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct AdmissionSetArgs {
    /// So many runs may be under way at once; with 0 nothing more starts.
    #[arg(long, value_name = "N")]
    pub(crate) max_active: u64,
}
