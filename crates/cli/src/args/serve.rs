//! `windlass serve`.

use super::allocation_reconciler::AllocationReconcilerArgs;
use super::backend::RequestBackendArgs;
use super::reqmgr2::Reqmgr2Args;
use super::request_failure_policy::RequestFailurePolicyArgs;
use super::request_timeouts::RequestTimeoutArgs;
use super::rounds::RequestRoundsArgs;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use windlass_server::options::{DEFAULT_PORT, DEFAULT_TAPE_RSE};
use windlass_types::parse_duration;

#[derive(Debug, Args)]
#[command(after_help = "\
Without options it serves the database that the other commands use, on this machine only. Commands and workers of
yours find it, and its token, by themselves: `windlass status`, `windlass worker`.

Examples:
  windlass serve                                         for yourself, on this machine
  windlass serve --listen 0.0.0.0:8443 --tls-cert c.pem --tls-key k.pem
  windlass serve --db postgres://windlass@db/windlass    a second one stands by and takes over
  windlass serve --backend htcondor                      requests run as DAGs of the HTCondor pool of this machine
  windlass serve --check                                 whether it could be started as it is set up
  windlass serve --print-systemd-unit > /etc/systemd/system/windlass.service

Signals: SIGTERM and SIGINT stop it without losing anything, SIGHUP makes it read its files again.")]
pub(crate) struct ServeArgs {
    /// Listen at ADDRESS:PORT, or at this port of loopback. By default 127.0.0.1:8080, or another port if it is taken.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// A worker that is not heard of for so long is taken for dead, and its jobs are given to others.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_lease)]
    pub(crate) lease: Duration,
    /// Time that a job gets to end by itself when it is stopped, before it is killed.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Hold failures of any user's workers on a host against all workers there. By default a host is set aside only for
    /// the workers of the user whose workers failed.
    #[arg(long)]
    pub(crate) share_node_blame: bool,
    /// Ask nobody who he is. Whoever can connect may do everything; only on loopback.
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Who may do what: a file with roles, issuers of tokens and certificates of users.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_config: Option<PathBuf>,
    /// Keep what requests need in this directory; workers must see it under the same path. Without it, beside the
    /// database.
    #[arg(long, value_name = "DIR")]
    pub(crate) requests_dir: Option<PathBuf>,
    /// Run this program whenever a person should know something about a request; it gets the alert as JSON on its standard
    /// input.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) alert_program: Option<PathBuf>,
    /// RSE expression of the rules that archive outputs on tape.
    #[arg(long, value_name = "EXPRESSION", default_value = DEFAULT_TAPE_RSE, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) tape_rse: String,
    /// Pause before a failed job of a request is retried, and before a round is rescued; doubled each time, up to ten minutes.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) cool_off: Duration,
    /// Users and their passwords, as `windlass auth password` and Torc's `torc-htpasswd` write them.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Speak TLS with this certificate, its chain behind it (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Know clients by certificates that these authorities gave them (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Lists of certificates that these authorities have revoked (PEM). With it, a certificate is refused unless each authority of its
    /// chain has a list that is not out of date. Read again on SIGHUP. Give it again for more.
    #[arg(long, value_name = "FILE", requires = "client_ca")]
    pub(crate) client_crl: Vec<PathBuf>,
    /// Let nobody in who shows no certificate.
    #[arg(long)]
    pub(crate) require_client_cert: bool,
    /// Answer at most so many requests at once, waits not counted; more are told to come again.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests: u32,
    /// Requests per second of one client; 0 for as many as it likes.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) rate_limit: u32,
    /// A request takes at most so long, waits and streams not counted.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub(crate) request_timeout: Duration,
    /// Speak to AI agents at /mcp, each with the rights of its token: `read` lets them look, `write` also act.
    #[arg(long, value_enum, value_name = "RIGHTS", num_args = 0..=1, require_equals = true, default_missing_value = "read")]
    pub(crate) mcp: Option<AgentRightsArg>,
    /// Write the log as text for people, or as JSON, one object per line.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormatArg,
    /// What is logged: error, warn, info, debug, trace; also per part, as info,windlass_server=debug.
    #[arg(id = "serve_log_level", long = "log-level", value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    pub(crate) log_level: String,
    /// Check settings, files and the database, and say what would be served; do not serve.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print a systemd unit for this server as it is set up, and do not serve.
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_systemd_unit: bool,
    #[command(flatten)]
    pub(crate) blame: RequestFailurePolicyArgs,
    #[command(flatten)]
    pub(crate) patience: RequestTimeoutArgs,
    #[command(flatten)]
    pub(crate) rounds: RequestRoundsArgs,
    #[command(flatten)]
    pub(crate) backend: RequestBackendArgs,
    #[command(flatten)]
    pub(crate) reqmgr2: Reqmgr2Args,
    #[command(flatten)]
    pub(crate) reconciler: AllocationReconcilerArgs,
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

fn parse_level(text: &str) -> Result<String, String> {
    windlass_server::logging::check(text).map(|()| text.to_owned()).map_err(|e| e.to_string())
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Where to listen when nothing is said.
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
            "an address and a port, like 127.0.0.1:8080 or 0.0.0.0:8080, or a port alone".to_owned()
        })
}

/// Shorter leases end with every hiccup of a network.
const MIN_LEASE: Duration = Duration::from_secs(2);

pub(crate) fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(lease) if lease < MIN_LEASE => Err("a lease lasts at least 2s".to_owned()),
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_short() {
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
    fn a_lease_is_not_too_short() {
        assert!(parse_lease("1s").is_err() && parse_lease("soon").is_err());
        assert_eq!(parse_lease("2s"), Ok(Duration::from_secs(2)));
    }
}
