//! `windlass serve`.

use super::allocation_reconciler::AllocationReconcilerArgs;
use super::reqmgr2::Reqmgr2Args;
use super::request_backend::RequestBackendArgs;
use super::request_failure_policy::RequestFailurePolicyArgs;
use super::request_timeouts::RequestTimeoutArgs;
use super::rounds::RequestRoundsArgs;
use clap::builder::NonEmptyStringValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, ValueEnum};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use windlass_server::options::{DEFAULT_PORT, DEFAULT_TAPE_RSE};
use windlass_types::parse_duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Without options, the server uses the database that other commands use, and listens on this machine only. Your commands and \
workers find it and its token automatically: `windlass status`, `windlass worker`.

Examples:
  windlass serve                                         for yourself, on this machine
  windlass serve --listen 0.0.0.0:8443 --tls-cert c.pem --tls-key k.pem
  windlass serve --db postgres://windlass@db/windlass    a second server with this database is a standby
  windlass serve --backend htcondor                      run requests as DAGs in the HTCondor pool of this machine
  windlass serve --check                                 check the configuration
  windlass serve --print-systemd-unit > /etc/systemd/system/windlass.service

Signals: SIGTERM and SIGINT stop the server without losing data, SIGHUP reloads its files.")]
pub(crate) struct ServeArgs {
    /// Address to listen on: ADDRESS:PORT, or a port of the loopback address. Default: 127.0.0.1:8080, or another
    /// port if it is in use.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Time without contact after which a worker is considered lost and its jobs are reassigned.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_lease)]
    pub(crate) lease: Duration,
    /// Time that a job has to exit after the stop signal before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Quarantine a node for the workers of all users. Default: only for the workers of the user whose jobs
    /// failed there.
    #[arg(long, alias = "share-node-blame")]
    pub(crate) quarantine_for_all_users: bool,
    /// Disable authentication (loopback only): every client has full access.
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// File with roles of users, token issuers and client certificates.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_config: Option<PathBuf>,
    /// Directory for the files of requests; workers need it under the same path. Default: beside the database.
    #[arg(long, value_name = "DIR")]
    pub(crate) requests_dir: Option<PathBuf>,
    /// Program to run for each alert about a request; it gets the alert as JSON on standard input.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) alert_program: Option<PathBuf>,
    /// RSE expression for rules that archive outputs on tape.
    #[arg(long, value_name = "EXPRESSION", default_value = DEFAULT_TAPE_RSE, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tape_rse: String,
    /// Delay before a failed job of a request is retried and before a round is rescued; doubled each time, up
    /// to ten minutes.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) cool_off: Duration,
    /// Password file, as `windlass auth password` and Torc's `torc-htpasswd` write it.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// TLS certificate of the server and its chain (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the TLS certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificate authorities for client certificates (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Certificate revocation list of the client certificate authorities (PEM); repeat for more. If given, a
    /// certificate is rejected unless each authority of its chain has a current list. Reloaded on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    pub(crate) client_crl: Vec<PathBuf>,
    /// Require a client certificate.
    #[arg(long)]
    pub(crate) require_client_cert: bool,
    /// Maximum number of concurrent requests (long polls excluded); further requests get 503.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests: u32,
    /// Maximum number of requests per second of one client. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) rate_limit: u32,
    /// Timeout of a request (long polls and streams excluded).
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) request_timeout: Duration,
    /// Offer MCP for AI agents at /mcp: only tools that `read`, or also tools that `write`. An agent has the
    /// permissions of its token.
    #[arg(long, value_enum, value_name = "RIGHTS", num_args = 0..=1, require_equals = true, default_missing_value = "read")]
    pub(crate) mcp: Option<AgentRightsArg>,
    /// Format of the log: text, or JSON with one object per line.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormatArg,
    /// Log level: error, warn, info, debug, trace; also per module, as info,windlass_server=debug.
    #[arg(id = "serve_log_level", long = "log-level", value_name = "LEVEL", default_value = "info", value_parser = parse_log_level)]
    pub(crate) log_level: String,
    /// Check settings, files and the database, print what would be served, and exit.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print a systemd unit for this server with its options, and exit.
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_systemd_unit: bool,
    #[command(flatten)]
    pub(crate) failure_policy: RequestFailurePolicyArgs,
    #[command(flatten)]
    pub(crate) timeouts: RequestTimeoutArgs,
    #[command(flatten)]
    pub(crate) rounds: RequestRoundsArgs,
    #[command(flatten)]
    pub(crate) backend: RequestBackendArgs,
    #[command(flatten)]
    pub(crate) reqmgr2: Reqmgr2Args,
    #[command(flatten)]
    pub(crate) reconciler: AllocationReconcilerArgs,
    /// Set by [`super::from_matches`].
    #[arg(skip)]
    pub(crate) given: Vec<GivenOption>,
}

/// An option that the command line gives, not a default or a setting.
#[derive(Debug)]
pub(crate) struct GivenOption {
    pub(crate) name: String,
    /// None for a flag.
    pub(crate) values: Vec<OsString>,
    pub(crate) is_path: bool,
}

/// The options of `serve` on the command line, in the order of its help; without the global options.
pub(crate) fn given_options(matches: &ArgMatches) -> Vec<GivenOption> {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let options = command.get_arguments().filter(|arg| is_given(arg.get_id().as_str())).filter_map(|arg| {
        let id = arg.get_id().as_str();
        let values = matches.get_raw(id).filter(|_| arg.get_action().takes_values());
        Some(GivenOption {
            name: arg.get_long()?.to_owned(),
            values: values.into_iter().flatten().map(ToOwned::to_owned).collect(),
            is_path: matches.try_get_many::<PathBuf>(id).is_ok(),
        })
    });
    options.collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentRightsArg {
    Read,
    Write,
}

impl From<AgentRightsArg> for windlass_server::options::AgentPermission {
    fn from(rights: AgentRightsArg) -> Self {
        match rights {
            AgentRightsArg::Read => Self::Read,
            AgentRightsArg::Write => Self::Write,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormatArg {
    Text,
    Json,
}

pub(crate) fn parse_log_level(text: &str) -> Result<String, String> {
    windlass_server::logging::check(text).map(|()| text.to_owned()).map_err(|e| e.to_string())
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Default address to listen on.
pub(crate) const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, DEFAULT_PORT);

/// `0.0.0.0:8080`, `[::1]:8080`, `localhost:8080`, `8080` or `0.0.0.0`.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let text =
        text.strip_prefix("localhost").map_or_else(|| text.to_owned(), |rest| format!("127.0.0.1{rest}"));
    let bare = text.strip_prefix(':').unwrap_or(&text);
    (text.parse::<SocketAddr>().ok())
        .or_else(|| bare.parse::<u16>().ok().map(|port| SocketAddr::new(LOOPBACK, port)))
        .or_else(|| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DEFAULT_PORT)))
        .ok_or_else(|| {
            "expected an address and a port, such as 127.0.0.1:8080 or 0.0.0.0:8080, or a port".to_owned()
        })
}

/// Shorter leases would expire during short network failures.
const MIN_LEASE: Duration = Duration::from_secs(2);

pub(crate) fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(lease) if lease < MIN_LEASE => Err("a lease must be at least 2s".to_owned()),
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_accepts_short_forms() {
        for (text, meant) in [
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("localhost:9", "127.0.0.1:9"),
            ("localhost", "127.0.0.1:8080"),
            ("9", "127.0.0.1:9"),
            (":9", "127.0.0.1:9"),
            ("0.0.0.0", "0.0.0.0:8080"),
            ("[::1]:9", "[::1]:9"),
            ("::", "[::]:8080"),
        ] {
            assert_eq!(parse_listen(text).map(|a| a.to_string()), Ok(meant.to_owned()), "{text}");
        }
        for wrong in ["", "localhost:x", "1.2.3:4", "70000", "example.org:80"] {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn too_short_lease_is_rejected() {
        assert!(parse_lease("1s").is_err() && parse_lease("soon").is_err());
        assert_eq!(parse_lease("2s"), Ok(Duration::from_secs(2)));
    }
}
