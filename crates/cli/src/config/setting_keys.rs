//! The table of all settings: used to check files, to write `config init`, and to set the defaults of the
//! command line.

use crate::args::parse_memory;
use crate::args::serve::{parse_lease, parse_listen};
use crate::args::slurm::parse_word;
use crate::args::worker::parse_site;
use windlass_types::parse_duration;

/// A setting, named `section.key`, or just `key`.
#[derive(Debug)]
pub(crate) struct SettingKey {
    pub(crate) name: &'static str,
    /// The clap id of the argument, in any command, whose default this is.
    pub(crate) arg: &'static str,
    pub(crate) kind: SettingKind,
    /// The built-in default.
    pub(crate) default: Option<&'static str>,
    pub(crate) meaning: &'static str,
    pub(crate) example: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingKind {
    Path,
    Url,
    /// A whole number from 1.
    Count,
    Number,
    Memory,
    Duration,
    /// A socket address.
    Address,
    /// A site name.
    Site,
    /// A duration with a minimum.
    Lease,
    /// A log level.
    LogLevel,
    /// A name known to Slurm.
    Word,
    /// Any text that is not empty.
    Text,
    Choice(&'static [&'static str]),
}

pub(crate) const KEYS: &[SettingKey] = &[
    SettingKey {
        name: "db",
        arg: "db",
        kind: SettingKind::Path,
        default: None,
        meaning: "database file or URL; default: .windlass/windlass.db in the current directory or a parent",
        example: "\"/data/me/windlass.db\"",
    },
    SettingKey {
        name: "url",
        arg: "url",
        kind: SettingKind::Url,
        default: None,
        meaning: "URL of a server to use instead of a database",
        example: "\"https://windlass.example.org\"",
    },
    SettingKey {
        name: "log_level",
        arg: "root_log_level",
        kind: SettingKind::LogLevel,
        default: None,
        meaning: "log of decisions on standard error, for all commands but serve: error, warn, info, debug, trace",
        example: "\"debug\"",
    },
    SettingKey {
        name: "ca_file",
        arg: "ca_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "CA certificates to trust in addition to those of the system (PEM)",
        example: "\"/etc/ssl/our-ca.pem\"",
    },
    SettingKey {
        name: "cert",
        arg: "client_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "client certificate and chain, sent to servers (PEM)",
        example: "\"/home/me/me.pem\"",
    },
    SettingKey {
        name: "key",
        arg: "client_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of the client certificate, if in a separate file (PEM)",
        example: "\"/home/me/me.key\"",
    },
    SettingKey {
        name: "format",
        arg: "format",
        kind: SettingKind::Choice(&["table", "json", "csv"]),
        default: Some("table"),
        meaning: "output format",
        example: "\"table\"",
    },
    SettingKey {
        name: "color",
        arg: "color",
        kind: SettingKind::Choice(&["auto", "always", "never"]),
        default: Some("auto"),
        meaning: "when to color output",
        example: "\"auto\"",
    },
    SettingKey {
        name: "run.output_dir",
        arg: "output_dir",
        kind: SettingKind::Path,
        default: Some("windlass_output"),
        meaning: "directory for job logs, relative to the current directory",
        example: "\"windlass_output\"",
    },
    SettingKey {
        name: "run.max_parallel_jobs",
        arg: "max_parallel_jobs",
        kind: SettingKind::Count,
        default: None,
        meaning: "maximum number of jobs to run at once",
        example: "8",
    },
    SettingKey {
        name: "run.num_cpus",
        arg: "num_cpus",
        kind: SettingKind::Count,
        default: None,
        meaning: "CPUs available to jobs; default: all",
        example: "6",
    },
    SettingKey {
        name: "run.memory",
        arg: "memory",
        kind: SettingKind::Memory,
        default: None,
        meaning: "memory available to jobs (a bare number is in GiB); default: all",
        example: "\"16G\"",
    },
    SettingKey {
        name: "run.num_gpus",
        arg: "num_gpus",
        kind: SettingKind::Number,
        default: None,
        meaning: "GPUs available to jobs; default: all",
        example: "1",
    },
    SettingKey {
        name: "run.grace",
        arg: "grace",
        kind: SettingKind::Duration,
        default: Some("10s"),
        meaning: "time between asking a job to terminate and killing it",
        example: "\"10s\"",
    },
    SettingKey {
        name: "classify.rules_file",
        arg: "rules_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "file with classification rules for failures, applied before the built-in rules",
        example: "\"/data/me/rules.toml\"",
    },
    SettingKey {
        name: "worker.site",
        arg: "worker_site",
        kind: SettingKind::Site,
        default: Some("local"),
        meaning: "site name of workers started on this machine",
        example: "\"T2_CH_CERN\"",
    },
    SettingKey {
        name: "serve.listen",
        arg: "listen",
        kind: SettingKind::Address,
        default: Some("127.0.0.1:8080"),
        meaning: "address and port on which the server listens",
        example: "\"0.0.0.0:8080\"",
    },
    SettingKey {
        name: "serve.lease",
        arg: "lease",
        kind: SettingKind::Lease,
        default: Some("60s"),
        meaning: "time without contact after which a worker is considered lost and its jobs are reassigned",
        example: "\"60s\"",
    },
    SettingKey {
        name: "serve.auth_config",
        arg: "auth_config",
        kind: SettingKind::Path,
        default: None,
        meaning: "file with roles, token issuers and certificate users of the server",
        example: "\"/etc/windlass/auth.toml\"",
    },
    SettingKey {
        name: "serve.password_file",
        arg: "password_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "file with the users of the server and their passwords",
        example: "\"/etc/windlass/passwords\"",
    },
    SettingKey {
        name: "serve.requests_dir",
        arg: "requests_dir",
        kind: SettingKind::Path,
        default: None,
        meaning: "directory for the files of requests; workers must see it under the same path",
        example: "\"/shared/windlass\"",
    },
    SettingKey {
        name: "serve.cool_off",
        arg: "cool_off",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "delay before a failed job of a request is retried, and before a round is rescued",
        example: "\"5m\"",
    },
    SettingKey {
        name: "serve.tape_rse",
        arg: "tape_rse",
        kind: SettingKind::Text,
        default: Some("tier=1&type=TAPE"),
        meaning: "RSE expression of the rules that archive outputs on tape",
        example: "\"tier=1&type=TAPE\"",
    },
    SettingKey {
        name: "serve.mc_completion",
        arg: "mc_completion",
        kind: SettingKind::Choice(&["produced", "offset"]),
        default: Some("produced"),
        meaning: "when a request for generated events is complete",
        example: "\"produced\"",
    },
    SettingKey {
        name: "serve.hold_percent",
        arg: "hold_percent",
        kind: SettingKind::Number,
        default: Some("20"),
        meaning: "percentage of failed work units in a round from which its request is held; below it, the round is rescued",
        example: "20",
    },
    SettingKey {
        name: "serve.max_rescues",
        arg: "max_rescues",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "maximum number of rescues of a round; after that its request is held",
        example: "3",
    },
    SettingKey {
        name: "serve.site_ban_failures",
        arg: "site_ban_failures",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "site-related failures after which a site is banned for a request; 0: never",
        example: "3",
    },
    SettingKey {
        name: "serve.site_ban_percent",
        arg: "site_ban_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "percentage of the attempts ended at a site that site-related failures must exceed before it is banned",
        example: "50",
    },
    SettingKey {
        name: "serve.site_ban_duration",
        arg: "site_ban_duration",
        kind: SettingKind::Duration,
        default: Some("7d"),
        meaning: "duration of a site ban",
        example: "\"7d\"",
    },
    SettingKey {
        name: "serve.site_ban_promotion",
        arg: "site_ban_promotion",
        kind: SettingKind::Count,
        default: Some("3"),
        meaning: "number of requests with a ban of the same site after which it is banned for all",
        example: "3",
    },
    SettingKey {
        name: "serve.on_similar_failures",
        arg: "on_similar_failures",
        kind: SettingKind::Choice(&["alert", "pause", "hold", "nothing"]),
        default: Some("pause"),
        meaning: "action if most attempts of a run fail with the same error, at all sites",
        example: "\"pause\"",
    },
    SettingKey {
        name: "serve.similar_failure_count",
        arg: "similar_failure_count",
        kind: SettingKind::Count,
        default: Some("10"),
        meaning: "minimum number of similar failures of a run, or at one site, for on_similar_failures",
        example: "10",
    },
    SettingKey {
        name: "serve.similar_failure_percent",
        arg: "similar_failure_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "percentage of the attempts ended in similar_failure_window that similar failures must exceed",
        example: "50",
    },
    SettingKey {
        name: "serve.similar_failure_window",
        arg: "similar_failure_window",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time window in which similar failures are counted",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.similar_failure_hold_after",
        arg: "similar_failure_hold_after",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which the request of a paused run is held, unless an operator resumes it",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.processing_retries",
        arg: "processing_retries",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "retries of a processing job of a request",
        example: "5",
    },
    SettingKey {
        name: "serve.merge_retries",
        arg: "merge_retries",
        kind: SettingKind::Number,
        default: Some("2"),
        meaning: "retries of a merge job of a request",
        example: "3",
    },
    SettingKey {
        name: "serve.submitted_timeout",
        arg: "submitted_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which a request in the state submitted is held; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.queued_timeout",
        arg: "queued_timeout",
        kind: SettingKind::Duration,
        default: Some("7d"),
        meaning: "time after which an alert is sent for a request in the queue; 0s: never",
        example: "\"14d\"",
    },
    SettingKey {
        name: "serve.planning_timeout",
        arg: "planning_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which a request in the state planning is held; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.active_timeout",
        arg: "active_timeout",
        kind: SettingKind::Duration,
        default: Some("30d"),
        meaning: "time after which an alert is sent for an active request; 0s: never",
        example: "\"60d\"",
    },
    SettingKey {
        name: "serve.stopping_timeout",
        arg: "stopping_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which an alert is sent for a request that is still stopping; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.resubmitting_timeout",
        arg: "resubmitting_timeout",
        kind: SettingKind::Duration,
        default: Some("10m"),
        meaning: "time after which a request that has not returned to the queue is held; 0s: never",
        example: "\"10m\"",
    },
    SettingKey {
        name: "serve.partial_timeout",
        arg: "partial_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which a request with unhandled failures is held; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.silence_timeout",
        arg: "silence_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "time after which an alert is sent for a run whose backend does not respond",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.outputs_timeout",
        arg: "outputs_timeout",
        kind: SettingKind::Duration,
        default: Some("3d"),
        meaning: "time for which recording an output is retried",
        example: "\"3d\"",
    },
    SettingKey {
        name: "serve.adaptive",
        arg: "adaptive",
        kind: SettingKind::Choice(&["on", "off"]),
        default: Some("on"),
        meaning: "whether rounds are planned with measurements of earlier rounds",
        example: "\"on\"",
    },
    SettingKey {
        name: "serve.first_round_units",
        arg: "first_round_units",
        kind: SettingKind::Number,
        default: Some("100"),
        meaning: "maximum number of work units in the first round of a request; 0: all",
        example: "100",
    },
    SettingKey {
        name: "serve.first_round_jobs",
        arg: "first_round_jobs",
        kind: SettingKind::Number,
        default: Some("1000"),
        meaning: "maximum number of processing jobs in the first round of a request; 0: all",
        example: "1000",
    },
    SettingKey {
        name: "serve.round_growth",
        arg: "round_growth",
        kind: SettingKind::Count,
        default: Some("10"),
        meaning: "maximum growth factor from one round to the next",
        example: "10",
    },
    SettingKey {
        name: "serve.target_job_time",
        arg: "target_job_time",
        kind: SettingKind::Duration,
        default: Some("8h"),
        meaning: "target duration of a job, where jobs are split by events",
        example: "\"8h\"",
    },
    SettingKey {
        name: "serve.overcommit_percent",
        arg: "overcommit_percent",
        kind: SettingKind::Number,
        default: Some("100"),
        meaning: "maximum threads of a job in percent of its cores; 100: no overcommit",
        example: "100",
    },
    SettingKey {
        name: "serve.probe_jobs",
        arg: "probe_jobs",
        kind: SettingKind::Number,
        default: Some("2"),
        meaning: "jobs of a first round that are run with half the threads as a probe; 0: none",
        example: "2",
    },
    SettingKey {
        name: "serve.min_samples",
        arg: "min_samples",
        kind: SettingKind::Count,
        default: Some("5"),
        meaning: "minimum number of measured jobs of a request before its plan is adapted",
        example: "5",
    },
    SettingKey {
        name: "serve.split_below_percent",
        arg: "split_below_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "CPU efficiency in percent below which steps are run in parallel instances",
        example: "50",
    },
    SettingKey {
        name: "serve.default_memory_per_core",
        arg: "default_memory_per_core",
        kind: SettingKind::Count,
        default: Some("2000"),
        meaning: "minimum memory of a job per core, in MB",
        example: "2000",
    },
    SettingKey {
        name: "serve.max_memory_per_core",
        arg: "max_memory_per_core",
        kind: SettingKind::Count,
        default: Some("3000"),
        meaning: "maximum memory of a job per core, in MB; requests with more are rejected",
        example: "3000",
    },
    SettingKey {
        name: "serve.memory_safety_percent",
        arg: "memory_safety_percent",
        kind: SettingKind::Number,
        default: Some("20"),
        meaning: "safety margin on measured memory, in percent",
        example: "20",
    },
    SettingKey {
        name: "serve.alert_program",
        arg: "alert_program",
        kind: SettingKind::Path,
        default: None,
        meaning: "program that receives each alert about a request as JSON on stdin, for example to send mail or call a webhook",
        example: "\"/usr/local/bin/page-operators\"",
    },
    SettingKey {
        name: "serve.backend",
        arg: "serve_backend",
        kind: SettingKind::Choice(&["engine", "htcondor"]),
        default: Some("engine"),
        meaning: "backend of new runs of requests: workers of the server, or an HTCondor pool",
        example: "\"htcondor\"",
    },
    SettingKey {
        name: "serve.tls_cert",
        arg: "tls_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "server certificate and chain (PEM)",
        example: "\"/etc/windlass/cert.pem\"",
    },
    SettingKey {
        name: "serve.tls_key",
        arg: "tls_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of the server certificate (PEM)",
        example: "\"/etc/windlass/key.pem\"",
    },
    SettingKey {
        name: "serve.client_ca",
        arg: "client_ca",
        kind: SettingKind::Path,
        default: None,
        meaning: "CA certificates that verify client certificates (PEM)",
        example: "\"/etc/windlass/clients.pem\"",
    },
    SettingKey {
        name: "serve.require_client_cert",
        arg: "require_client_cert",
        kind: SettingKind::Choice(&["true", "false"]),
        default: Some("false"),
        meaning: "whether clients must present a certificate",
        example: "true",
    },
    SettingKey {
        name: "serve.max_requests",
        arg: "max_requests",
        kind: SettingKind::Count,
        default: Some("256"),
        meaning: "maximum number of concurrent requests (long polls excluded); further requests get 503",
        example: "256",
    },
    SettingKey {
        name: "serve.rate_limit",
        arg: "rate_limit",
        kind: SettingKind::Number,
        default: Some("500"),
        meaning: "maximum requests per second per client; 0: unlimited",
        example: "500",
    },
    SettingKey {
        name: "serve.request_timeout",
        arg: "request_timeout",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "maximum duration of a request (long polls and streams excluded)",
        example: "\"60s\"",
    },
    SettingKey {
        name: "serve.log_format",
        arg: "log_format",
        kind: SettingKind::Choice(&["text", "json"]),
        default: Some("text"),
        meaning: "log format of the server",
        example: "\"text\"",
    },
    SettingKey {
        name: "serve.log_level",
        arg: "serve_log_level",
        kind: SettingKind::LogLevel,
        default: Some("info"),
        meaning: "log level of the server: error, warn, info, debug, trace",
        example: "\"info\"",
    },
    SettingKey {
        name: "serve.slurm",
        arg: "serve_slurm",
        kind: SettingKind::Choice(&["true", "false"]),
        default: Some("false"),
        meaning: "whether the server manages Slurm allocations",
        example: "true",
    },
    SettingKey {
        name: "serve.slurm_worker_url",
        arg: "slurm_worker_url",
        kind: SettingKind::Url,
        default: None,
        meaning: "URL under which workers in allocations reach the server; default: the listen address",
        example: "\"https://login1.example.org:8443\"",
    },
    SettingKey {
        name: "serve.slurm_windlass",
        arg: "slurm_windlass",
        kind: SettingKind::Path,
        default: None,
        meaning: "windlass executable for workers in allocations, as a path on the nodes; default: that of the server",
        example: "\"/shared/bin/windlass\"",
    },
    SettingKey {
        name: "serve.slurm_poll",
        arg: "slurm_poll",
        kind: SettingKind::Duration,
        default: Some("3s"),
        meaning: "interval of Slurm polls while allocations change",
        example: "\"10s\"",
    },
    SettingKey {
        name: "serve.slurm_slowest_poll",
        arg: "slurm_slowest_poll",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "interval of Slurm polls while allocations do not change",
        example: "\"5m\"",
    },
    SettingKey {
        name: "serve.slurm_calls",
        arg: "slurm_calls",
        kind: SettingKind::Count,
        default: Some("60"),
        meaning: "maximum number of Slurm commands per minute",
        example: "30",
    },
    SettingKey {
        name: "slurm.account",
        arg: "slurm_default_account",
        kind: SettingKind::Word,
        default: None,
        meaning: "Slurm account of allocations, unless the command line or the spec names one",
        example: "\"lab\"",
    },
    SettingKey {
        name: "slurm.profile",
        arg: "slurm_profile",
        kind: SettingKind::Path,
        default: None,
        meaning: "cluster profile, by name or file; default: queried from Slurm",
        example: "\"ours\"",
    },
    SettingKey {
        name: "reqmgr2.url",
        arg: "reqmgr2",
        kind: SettingKind::Url,
        default: None,
        meaning: "URL of the ReqMgr2 from which requests are imported by name",
        example: "\"https://cmsweb.cern.ch:8443/reqmgr2\"",
    },
    SettingKey {
        name: "reqmgr2.cert",
        arg: "reqmgr2_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "client certificate and chain, or X.509 proxy, for ReqMgr2 (PEM)",
        example: "\"/tmp/x509up_u1000\"",
    },
    SettingKey {
        name: "reqmgr2.key",
        arg: "reqmgr2_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of that certificate, if in a separate file (PEM)",
        example: "\"/etc/windlass/robot.key\"",
    },
    SettingKey {
        name: "reqmgr2.ca",
        arg: "reqmgr2_ca",
        kind: SettingKind::Path,
        default: None,
        meaning: "CA certificates to trust for ReqMgr2 in addition to those of the system: a file or a directory (PEM)",
        example: "\"/etc/grid-security/certificates\"",
    },
    SettingKey {
        name: "reqmgr2.token_file",
        arg: "reqmgr2_token_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "file with a token for ReqMgr2",
        example: "\"/run/user/1000/bt_u1000\"",
    },
    SettingKey {
        name: "reqmgr2.timeout",
        arg: "reqmgr2_timeout",
        kind: SettingKind::Duration,
        default: Some("30s"),
        meaning: "time after which requests to ReqMgr2 fail; until then, a busy server is retried",
        example: "\"30s\"",
    },
];

fn environment_variable(name: &str) -> String {
    format!("WINDLASS_{}", name.replace('.', "__").to_uppercase())
}

/// Settings under their old names, which are still read.
const OLD_NAMES: &[(&str, &str)] = &[
    ("serve.on_failing_alike", "serve.on_similar_failures"),
    ("serve.alike_attempts", "serve.similar_failure_count"),
    ("serve.alike_percent", "serve.similar_failure_percent"),
    ("serve.alike_window", "serve.similar_failure_window"),
    ("serve.alike_hold_after", "serve.similar_failure_hold_after"),
];

impl SettingKey {
    /// Whether this is the name of the setting, or its old name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || OLD_NAMES.contains(&(name, self.name))
    }

    /// Whether this environment variable sets it.
    pub(crate) fn is_set_by(&self, variable: &str) -> bool {
        let old = OLD_NAMES.iter().filter(|(_, new)| *new == self.name).map(|(old, _)| *old);
        old.chain([self.name]).any(|name| environment_variable(name) == variable)
    }

    /// `WINDLASS_RUN__GRACE` for `run.grace`.
    pub(crate) fn environment_variable(&self) -> String {
        environment_variable(self.name)
    }

    /// The section, and the key in it.
    pub(crate) fn section_and_name(&self) -> (Option<&'static str>, &'static str) {
        self.name.split_once('.').map_or((None, self.name), |(section, key)| (Some(section), key))
    }

    /// Why a value is invalid.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            SettingKind::Path if value.is_empty() => Err("must not be empty".to_owned()),
            SettingKind::Url if value.starts_with("http://") || value.starts_with("https://") => Ok(()),
            SettingKind::Url => Err("must begin with http:// or https://".to_owned()),
            SettingKind::Count => match value.parse::<u32>() {
                Ok(1..) => Ok(()),
                _ => Err("must be a whole number from 1".to_owned()),
            },
            SettingKind::Number => {
                value.parse::<u32>().map(|_| ()).map_err(|_| "must be a whole number".to_owned())
            }
            SettingKind::Memory => parse_memory(value).map(|_| ()),
            SettingKind::Address => parse_listen(value).map(|_| ()),
            SettingKind::LogLevel => windlass_server::logging::check(value).map_err(|e| e.to_string()),
            SettingKind::Site => parse_site(value).map(|_| ()),
            SettingKind::Lease => parse_lease(value).map(|_| ()),
            SettingKind::Duration => parse_duration(value).map(|_| ()).map_err(|e| e.to_string()),
            SettingKind::Word => parse_word(value).map(|_| ()),
            SettingKind::Text if value.is_empty() => Err("it is empty".to_owned()),
            SettingKind::Path | SettingKind::Text => Ok(()),
            SettingKind::Choice(choices) if choices.contains(&value) => Ok(()),
            SettingKind::Choice(choices) => {
                Err(match windlass_spec::nearest_name(value, choices.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`? Valid values: {}", choices.join(", ")),
                    None => format!("valid values: {}", choices.join(", ")),
                })
            }
        }
    }
}

/// A file that explains every setting and sets none.
pub(crate) fn render_template() -> String {
    let mut parts = vec![
        "# Settings of windlass. `windlass config show --origin` shows the effective values.".to_owned(),
    ];
    let mut section = None;
    for key in KEYS {
        let (its_section, name) = key.section_and_name();
        if let Some(begins) = its_section.filter(|_| its_section != section) {
            parts.push(format!("[{begins}]"));
        }
        section = its_section;
        parts.push(format!("# {}\n# {name} = {}", key.meaning, key.example));
    }
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_defaults_and_examples_are_valid() {
        for key in KEYS {
            let bare = key.example.trim_matches('"');
            assert_eq!(key.check(bare), Ok(()), "{}", key.name);
            if let Some(default) = key.default {
                assert_eq!(key.check(default), Ok(()), "{}", key.name);
            }
        }
    }

    #[test]
    fn setting_error_names_valid_values() {
        let check =
            |name: &str, value| KEYS.iter().find(|key| key.name == name).unwrap().check(value).unwrap_err();
        assert!(check("format", "jsno").contains("did you mean `json`"));
        assert!(check("run.max_parallel_jobs", "0").contains("from 1"));
        assert!(check("run.memory", "lots").contains("16"));
        check("run.grace", "soon");
    }

    #[test]
    fn settings_have_environment_variable_names() {
        let variables: Vec<String> = KEYS.iter().map(SettingKey::environment_variable).collect();
        assert!(variables.contains(&"WINDLASS_DB".to_owned()));
        assert!(variables.contains(&"WINDLASS_RUN__MAX_PARALLEL_JOBS".to_owned()));
    }
}
