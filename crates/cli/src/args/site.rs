//! Sites where work units run, and the limit of concurrent requests.

use clap::{Args, Subcommand};
use std::time::Duration;
use windlass_types::requests::SiteStatus;
use windlass_types::{Timestamp, parse_duration};

#[derive(Debug, Args)]
#[command(after_help = "\
Operators add a site with `site set`, or by starting a worker there: `windlass worker --site NAME`. A token with the scope \
`worker` cannot add sites.

Examples:
  windlass site                                        list sites and their states
  windlass site drain T2_There --for 4h                finish its work units, start no new ones
  windlass site enable T2_There                        start work units again
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
    /// Show the details of a site and its bans.
    #[command(alias = "get")]
    Show(OneSiteArgs),
    /// Drain a site: it finishes its work units and gets no new ones.
    Drain(SiteDrainArgs),
    /// Enable a site: it gets work units again.
    Enable(OneSiteArgs),
    /// Ban a site: it gets no new work units for a time; running ones continue.
    Ban(SiteBanArgs),
    /// List the bans of sites with their scopes, times and reasons.
    Bans(SiteBansArgs),
    /// Lift the bans of a site.
    Unban(SiteUnbanArgs),
    /// Add a site, or change its properties.
    Set(SiteSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OneSiteArgs {
    /// Name of the site.
    #[arg(value_name = "SITE")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SiteDrainArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// Time after which the site is enabled again: `30m`, `2h`. Default: until `windlass site enable`.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) spell: Option<Duration>,
    /// Time at which the site is enabled again: `2026-08-01T18:00:00Z`. Default: until `windlass site
    /// enable`.
    #[arg(long, value_name = "TIME", conflicts_with = "spell", value_parser = super::run::parse_time)]
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A ban is rejected if it would leave no site where requests, or the given request, can run. Use `windlass site drain` to let \
a site finish its work.")]
pub(crate) struct SiteBanArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// Duration of the ban: `30m`, `2h`.
    #[arg(long = "for", value_name = "DURATION", default_value = "1d", value_parser = parse_duration)]
    pub(crate) spell: Duration,
    /// Ban the site only for this request. Default: for all requests.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Reason, shown in the list.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Sites are banned by operators, or automatically if too many jobs of a request failed there; a site that three requests \
have banned is banned for all requests. Automatic bans expire after seven days.

Examples:
  windlass site bans                                   current bans
  windlass site bans --request reco                    bans that apply to this request
  windlass site bans --site T2_There --all             history of a site")]
pub(crate) struct SiteBansArgs {
    /// Only bans of this site.
    #[arg(id = "ban_site", long = "site", value_name = "SITE")]
    pub(crate) site: Option<String>,
    /// Only bans that apply to this request, including bans for all requests.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Include expired and lifted bans.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SiteUnbanArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// Lift only bans for this request.
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SiteSetArgs {
    #[command(flatten)]
    pub(crate) site: OneSiteArgs,
    /// New status: `enabled`, `disabled`, `draining` or `maintenance`.
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    pub(crate) status: Option<SiteStatus>,
    /// Number of single-core jobs that the site can run at once.
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u64>,
    /// Storage directory of the site: the path of a file is this directory followed by its LFN.
    #[arg(long, value_name = "PATH")]
    pub(crate) storage_path: Option<String>,
    /// Name of the storage element of the site in other systems.
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_element: Option<String>,
}

fn parse_status(text: &str) -> Result<SiteStatus, String> {
    text.parse().map_err(|error: windlass_types::requests::ParseEnumNameError| error.to_string())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Queued requests start in this order: urgent requests first, then by priority; at equal priority, requestors take turns.

Examples:
  windlass request admission                        show running requests and the queue
  windlass request admission set --max-active 50    limit running requests to 50")]
pub(crate) struct AdmissionArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<AdmissionSubcommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdmissionSubcommand {
    /// Show the number of running requests, and the queue.
    Show(AdmissionQueueArgs),
    /// Change the maximum number of running requests.
    Set(AdmissionSetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AdmissionQueueArgs {
    /// Maximum number of entries of the queue.
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: u64,
}

#[derive(Debug, Args)]
pub(crate) struct AdmissionSetArgs {
    /// Maximum number of running requests; 0 starts no more requests.
    #[arg(long, value_name = "N")]
    pub(crate) max_active: u64,
}
