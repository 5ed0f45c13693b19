//! The settings that there are: one table, from which files are checked, `config init` is written and the command line
//! gets its defaults.

use crate::args::parse_memory;
use crate::args::serve::{parse_lease, parse_listen};
use crate::args::slurm::parse_word;
use crate::args::worker::parse_site;
use windlass_types::parse_duration;

/// One setting. Its name is `section.key`, or only `key`.
#[derive(Debug)]
pub(crate) struct SettingKey {
    pub(crate) name: &'static str,
    /// The argument, wherever it occurs, that this is the default of.
    pub(crate) arg: &'static str,
    pub(crate) kind: SettingKind,
    /// What holds where nothing is said.
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
    /// Where to listen.
    Address,
    /// The name of a site.
    Site,
    /// A duration that is not too short.
    Lease,
    /// What is logged.
    LogLevel,
    /// Something that Slurm knows by this name.
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
        meaning: "database to use instead of looking for .windlass/windlass.db here and above",
        example: "\"/data/me/windlass.db\"",
    },
    SettingKey {
        name: "url",
        arg: "url",
        kind: SettingKind::Url,
        default: None,
        meaning: "server to talk to instead of using a database",
        example: "\"https://windlass.example.org\"",
    },
    SettingKey {
        name: "ca_file",
        arg: "ca_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "certificates to trust beside those of the system, when talking to a server",
        example: "\"/etc/ssl/our-ca.pem\"",
    },
    SettingKey {
        name: "cert",
        arg: "client_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "certificate to show to a server that knows you by one (PEM)",
        example: "\"/home/me/me.pem\"",
    },
    SettingKey {
        name: "key",
        arg: "client_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of that certificate, if it is in a file of its own (PEM)",
        example: "\"/home/me/me.key\"",
    },
    SettingKey {
        name: "format",
        arg: "format",
        kind: SettingKind::Choice(&["table", "json", "csv"]),
        default: Some("table"),
        meaning: "how data is printed",
        example: "\"table\"",
    },
    SettingKey {
        name: "color",
        arg: "color",
        kind: SettingKind::Choice(&["auto", "always", "never"]),
        default: Some("auto"),
        meaning: "when output is coloured",
        example: "\"auto\"",
    },
    SettingKey {
        name: "run.output_dir",
        arg: "output_dir",
        kind: SettingKind::Path,
        default: Some("windlass_output"),
        meaning: "directory for the logs of jobs, from the current directory",
        example: "\"windlass_output\"",
    },
    SettingKey {
        name: "run.max_parallel_jobs",
        arg: "max_parallel_jobs",
        kind: SettingKind::Count,
        default: None,
        meaning: "run at most this many jobs at once",
        example: "8",
    },
    SettingKey {
        name: "run.num_cpus",
        arg: "num_cpus",
        kind: SettingKind::Count,
        default: None,
        meaning: "CPUs that jobs may use at once, instead of all",
        example: "6",
    },
    SettingKey {
        name: "run.memory",
        arg: "memory",
        kind: SettingKind::Memory,
        default: None,
        meaning: "memory that jobs may use at once, instead of all; a bare number counts GiB",
        example: "\"16G\"",
    },
    SettingKey {
        name: "run.num_gpus",
        arg: "num_gpus",
        kind: SettingKind::Number,
        default: None,
        meaning: "GPUs that jobs may use at once, instead of all",
        example: "1",
    },
    SettingKey {
        name: "run.grace",
        arg: "grace",
        kind: SettingKind::Duration,
        default: Some("10s"),
        meaning: "time that a job gets to end by itself when it is stopped, before it is killed",
        example: "\"10s\"",
    },
    SettingKey {
        name: "classify.rules_file",
        arg: "rules_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "rules of your own for the classes of failures, asked before those that are built in",
        example: "\"/data/me/rules.toml\"",
    },
    SettingKey {
        name: "worker.site",
        arg: "worker_site",
        kind: SettingKind::Site,
        default: Some("local"),
        meaning: "where workers are that are started here",
        example: "\"T2_CH_CERN\"",
    },
    SettingKey {
        name: "serve.listen",
        arg: "listen",
        kind: SettingKind::Address,
        default: Some("127.0.0.1:8080"),
        meaning: "where the server listens",
        example: "\"0.0.0.0:8080\"",
    },
    SettingKey {
        name: "serve.lease",
        arg: "lease",
        kind: SettingKind::Lease,
        default: Some("60s"),
        meaning: "a worker that is not heard of for so long is taken for dead",
        example: "\"60s\"",
    },
    SettingKey {
        name: "serve.auth_config",
        arg: "auth_config",
        kind: SettingKind::Path,
        default: None,
        meaning: "who may do what on the server: roles, issuers of tokens, certificates of users",
        example: "\"/etc/windlass/auth.toml\"",
    },
    SettingKey {
        name: "serve.password_file",
        arg: "password_file",
        kind: SettingKind::Path,
        default: None,
        meaning: "users of the server and their passwords",
        example: "\"/etc/windlass/passwords\"",
    },
    SettingKey {
        name: "serve.requests_dir",
        arg: "requests_dir",
        kind: SettingKind::Path,
        default: None,
        meaning: "where the server keeps what requests need; workers must see it under the same path",
        example: "\"/shared/windlass\"",
    },
    SettingKey {
        name: "serve.cool_off",
        arg: "cool_off",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "pause before a failed job of a request is retried, and before a round is rescued",
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
        meaning: "part of the work units of a round; if so many fail, the request is held, below it the round is rescued",
        example: "20",
    },
    SettingKey {
        name: "serve.max_rescues",
        arg: "max_rescues",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "how often a round is rescued after failures before its request is held",
        example: "3",
    },
    SettingKey {
        name: "serve.site_ban_failures",
        arg: "site_ban_failures",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "failures that a site may be the cause of, after which it is banned for a request; 0: never",
        example: "3",
    },
    SettingKey {
        name: "serve.site_ban_percent",
        arg: "site_ban_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "part of what ended at a site that these failures must be more than",
        example: "50",
    },
    SettingKey {
        name: "serve.site_ban_duration",
        arg: "site_ban_duration",
        kind: SettingKind::Duration,
        default: Some("7d"),
        meaning: "for how long a site is banned",
        example: "\"7d\"",
    },
    SettingKey {
        name: "serve.site_ban_promotion",
        arg: "site_ban_promotion",
        kind: SettingKind::Count,
        default: Some("3"),
        meaning: "how many requests that have banned a site make a ban for all",
        example: "3",
    },
    SettingKey {
        name: "serve.on_failing_alike",
        arg: "on_failing_alike",
        kind: SettingKind::Choice(&["alert", "pause", "hold", "nothing"]),
        default: Some("pause"),
        meaning: "what is done about a run most of whose attempts fail alike, wherever they are",
        example: "\"pause\"",
    },
    SettingKey {
        name: "serve.alike_attempts",
        arg: "alike_attempts",
        kind: SettingKind::Count,
        default: Some("10"),
        meaning: "failures alike, or at one site, that are too many",
        example: "10",
    },
    SettingKey {
        name: "serve.alike_percent",
        arg: "alike_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "part of what ended meanwhile that they must be more than",
        example: "50",
    },
    SettingKey {
        name: "serve.alike_window",
        arg: "alike_window",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "within which they are counted",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.alike_hold_after",
        arg: "alike_hold_after",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which the request of a paused run is held, unless somebody lets it go on",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.processing_retries",
        arg: "processing_retries",
        kind: SettingKind::Number,
        default: Some("3"),
        meaning: "how often a processing job of a request is tried again",
        example: "5",
    },
    SettingKey {
        name: "serve.merge_retries",
        arg: "merge_retries",
        kind: SettingKind::Number,
        default: Some("2"),
        meaning: "how often a merge is tried again",
        example: "3",
    },
    SettingKey {
        name: "serve.submitted_timeout",
        arg: "submitted_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which a request that is still submitted is held; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.queued_timeout",
        arg: "queued_timeout",
        kind: SettingKind::Duration,
        default: Some("7d"),
        meaning: "after which people are told of a request in the queue; 0s: never",
        example: "\"14d\"",
    },
    SettingKey {
        name: "serve.planning_timeout",
        arg: "planning_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which a request that is still being planned is held; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.active_timeout",
        arg: "active_timeout",
        kind: SettingKind::Duration,
        default: Some("30d"),
        meaning: "after which people are told of a request that is active; 0s: never",
        example: "\"60d\"",
    },
    SettingKey {
        name: "serve.stopping_timeout",
        arg: "stopping_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which people are told of a request that is still stopping; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.resubmitting_timeout",
        arg: "resubmitting_timeout",
        kind: SettingKind::Duration,
        default: Some("10m"),
        meaning: "after which a request is held that has not come back to the queue; 0s: never",
        example: "\"10m\"",
    },
    SettingKey {
        name: "serve.partial_timeout",
        arg: "partial_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which a request is held whose failures were not seen to; 0s: never",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.silence_timeout",
        arg: "silence_timeout",
        kind: SettingKind::Duration,
        default: Some("1h"),
        meaning: "after which people are told that the backend of a run does not answer",
        example: "\"1h\"",
    },
    SettingKey {
        name: "serve.outputs_timeout",
        arg: "outputs_timeout",
        kind: SettingKind::Duration,
        default: Some("3d"),
        meaning: "for how long recording an output is tried",
        example: "\"3d\"",
    },
    SettingKey {
        name: "serve.adaptive",
        arg: "adaptive",
        kind: SettingKind::Choice(&["on", "off"]),
        default: Some("on"),
        meaning: "whether rounds learn from what the jobs of earlier ones used",
        example: "\"on\"",
    },
    SettingKey {
        name: "serve.first_round_units",
        arg: "first_round_units",
        kind: SettingKind::Number,
        default: Some("100"),
        meaning: "work units of the first round of a request; 0: all of them",
        example: "100",
    },
    SettingKey {
        name: "serve.first_round_jobs",
        arg: "first_round_jobs",
        kind: SettingKind::Number,
        default: Some("1000"),
        meaning: "processing jobs of the first round of a request; 0: all that its work units have",
        example: "1000",
    },
    SettingKey {
        name: "serve.round_growth",
        arg: "round_growth",
        kind: SettingKind::Count,
        default: Some("10"),
        meaning: "how many times more each round may have than the one before",
        example: "10",
    },
    SettingKey {
        name: "serve.target_job_time",
        arg: "target_job_time",
        kind: SettingKind::Duration,
        default: Some("8h"),
        meaning: "how long a job is to take, where jobs are cut by events",
        example: "\"8h\"",
    },
    SettingKey {
        name: "serve.overcommit_percent",
        arg: "overcommit_percent",
        kind: SettingKind::Number,
        default: Some("100"),
        meaning: "threads that a job may have, as a part of its cores; 100: no more than cores",
        example: "100",
    },
    SettingKey {
        name: "serve.probe_jobs",
        arg: "probe_jobs",
        kind: SettingKind::Number,
        default: Some("2"),
        meaning: "jobs of a first round that try out half the threads; 0: none",
        example: "2",
    },
    SettingKey {
        name: "serve.min_samples",
        arg: "min_samples",
        kind: SettingKind::Count,
        default: Some("5"),
        meaning: "how many jobs of a request are measured before anything is changed by it",
        example: "5",
    },
    SettingKey {
        name: "serve.split_below_percent",
        arg: "split_below_percent",
        kind: SettingKind::Number,
        default: Some("50"),
        meaning: "steps that keep a smaller part of their cores busy are run side by side",
        example: "50",
    },
    SettingKey {
        name: "serve.default_memory_per_core",
        arg: "default_memory_per_core",
        kind: SettingKind::Count,
        default: Some("2000"),
        meaning: "MB that a job gets for each core, at least",
        example: "2000",
    },
    SettingKey {
        name: "serve.max_memory_per_core",
        arg: "max_memory_per_core",
        kind: SettingKind::Count,
        default: Some("3000"),
        meaning: "MB that a job may ask for, for each core; more is refused",
        example: "3000",
    },
    SettingKey {
        name: "serve.memory_safety_percent",
        arg: "memory_safety_percent",
        kind: SettingKind::Number,
        default: Some("20"),
        meaning: "how much more memory is asked for than was measured",
        example: "20",
    },
    SettingKey {
        name: "serve.alert_program",
        arg: "alert_program",
        kind: SettingKind::Path,
        default: None,
        meaning: "program that gets each alert about a request as JSON on its standard input: a mail, a webhook",
        example: "\"/usr/local/bin/page-operators\"",
    },
    SettingKey {
        name: "serve.backend",
        arg: "serve_backend",
        kind: SettingKind::Choice(&["engine", "htcondor"]),
        default: Some("engine"),
        meaning: "where new runs of requests go: to workers of the server, or to an HTCondor pool",
        example: "\"htcondor\"",
    },
    SettingKey {
        name: "serve.tls_cert",
        arg: "tls_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "certificate of the server, its chain behind it (PEM)",
        example: "\"/etc/windlass/cert.pem\"",
    },
    SettingKey {
        name: "serve.tls_key",
        arg: "tls_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of the certificate (PEM)",
        example: "\"/etc/windlass/key.pem\"",
    },
    SettingKey {
        name: "serve.client_ca",
        arg: "client_ca",
        kind: SettingKind::Path,
        default: None,
        meaning: "authorities whose certificates clients are known by (PEM)",
        example: "\"/etc/windlass/clients.pem\"",
    },
    SettingKey {
        name: "serve.require_client_cert",
        arg: "require_client_cert",
        kind: SettingKind::Choice(&["true", "false"]),
        default: Some("false"),
        meaning: "whether nobody is let in who shows no certificate",
        example: "true",
    },
    SettingKey {
        name: "serve.max_requests",
        arg: "max_requests",
        kind: SettingKind::Count,
        default: Some("256"),
        meaning: "requests at once, waits not counted; more are told to come again",
        example: "256",
    },
    SettingKey {
        name: "serve.rate_limit",
        arg: "rate_limit",
        kind: SettingKind::Number,
        default: Some("500"),
        meaning: "requests per second of one client; 0 for as many as it likes",
        example: "500",
    },
    SettingKey {
        name: "serve.request_timeout",
        arg: "request_timeout",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "longest time that a request may take, waits and streams not counted",
        example: "\"60s\"",
    },
    SettingKey {
        name: "serve.log_format",
        arg: "log_format",
        kind: SettingKind::Choice(&["text", "json"]),
        default: Some("text"),
        meaning: "how the server writes its log",
        example: "\"text\"",
    },
    SettingKey {
        name: "serve.log_level",
        arg: "serve_log_level",
        kind: SettingKind::LogLevel,
        default: Some("info"),
        meaning: "what the server logs: error, warn, info, debug, trace",
        example: "\"info\"",
    },
    SettingKey {
        name: "serve.slurm",
        arg: "serve_slurm",
        kind: SettingKind::Choice(&["true", "false"]),
        default: Some("false"),
        meaning: "whether the server looks after allocations of Slurm",
        example: "true",
    },
    SettingKey {
        name: "serve.slurm_worker_url",
        arg: "slurm_worker_url",
        kind: SettingKind::Url,
        default: None,
        meaning: "where workers in allocations find the server, instead of where it listens",
        example: "\"https://login1.example.org:8443\"",
    },
    SettingKey {
        name: "serve.slurm_windlass",
        arg: "slurm_windlass",
        kind: SettingKind::Path,
        default: None,
        meaning: "the windlass that workers in allocations are, as nodes see it, instead of the server's own",
        example: "\"/shared/bin/windlass\"",
    },
    SettingKey {
        name: "serve.slurm_poll",
        arg: "slurm_poll",
        kind: SettingKind::Duration,
        default: Some("3s"),
        meaning: "how often Slurm is asked while something happens to allocations",
        example: "\"10s\"",
    },
    SettingKey {
        name: "serve.slurm_slowest_poll",
        arg: "slurm_slowest_poll",
        kind: SettingKind::Duration,
        default: Some("60s"),
        meaning: "how often it is asked while nothing happens to them",
        example: "\"5m\"",
    },
    SettingKey {
        name: "serve.slurm_calls",
        arg: "slurm_calls",
        kind: SettingKind::Count,
        default: Some("60"),
        meaning: "how many commands of Slurm are called within a minute, at most",
        example: "30",
    },
    SettingKey {
        name: "slurm.account",
        arg: "slurm_default_account",
        kind: SettingKind::Word,
        default: None,
        meaning: "who pays for allocations of Slurm where neither the command line nor the spec says so",
        example: "\"lab\"",
    },
    SettingKey {
        name: "slurm.profile",
        arg: "slurm_profile",
        kind: SettingKind::Path,
        default: None,
        meaning: "what the cluster has: the name of a profile, or a file, instead of asking Slurm",
        example: "\"ours\"",
    },
    SettingKey {
        name: "reqmgr2.url",
        arg: "reqmgr2",
        kind: SettingKind::Url,
        default: None,
        meaning: "ReqMgr2 that is asked for requests that are imported by their names",
        example: "\"https://cmsweb.cern.ch:8443/reqmgr2\"",
    },
    SettingKey {
        name: "reqmgr2.cert",
        arg: "reqmgr2_cert",
        kind: SettingKind::Path,
        default: None,
        meaning: "certificate, its chain behind it, or X.509 proxy by which ReqMgr2 knows us (PEM)",
        example: "\"/tmp/x509up_u1000\"",
    },
    SettingKey {
        name: "reqmgr2.key",
        arg: "reqmgr2_key",
        kind: SettingKind::Path,
        default: None,
        meaning: "private key of that certificate, if it is in a file of its own (PEM)",
        example: "\"/etc/windlass/robot.key\"",
    },
    SettingKey {
        name: "reqmgr2.ca",
        arg: "reqmgr2_ca",
        kind: SettingKind::Path,
        default: None,
        meaning: "authorities that may certify ReqMgr2 beside those of the system: a file or a directory (PEM)",
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
        meaning: "time after which ReqMgr2 is given up; until then it is asked again if it is busy",
        example: "\"30s\"",
    },
];

impl SettingKey {
    /// `WINDLASS_RUN__GRACE` for `run.grace`.
    pub(crate) fn environment_variable(&self) -> String {
        format!("WINDLASS_{}", self.name.replace('.', "__").to_uppercase())
    }

    /// The section, and the name in it.
    pub(crate) fn section_and_name(&self) -> (Option<&'static str>, &'static str) {
        self.name.split_once('.').map_or((None, self.name), |(section, key)| (Some(section), key))
    }

    /// What is wrong with a value.
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
                    Some(near) => format!("did you mean `{near}`? There are: {}", choices.join(", ")),
                    None => format!("there are: {}", choices.join(", ")),
                })
            }
        }
    }
}

/// A file in which every setting is explained and none is set.
pub(crate) fn render_template() -> String {
    let mut parts = vec![
        "# Settings of windlass. `windlass config show --origin` says which ones are in force.".to_owned(),
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
    fn defaults_and_examples_are_good_values() {
        for key in KEYS {
            let bare = key.example.trim_matches('"');
            assert_eq!(key.check(bare), Ok(()), "{}", key.name);
            if let Some(default) = key.default {
                assert_eq!(key.check(default), Ok(()), "{}", key.name);
            }
        }
    }

    #[test]
    fn wrong_values_are_told_what_is_right() {
        let check =
            |name: &str, value| KEYS.iter().find(|key| key.name == name).unwrap().check(value).unwrap_err();
        assert!(check("format", "jsno").contains("did you mean `json`"));
        assert!(check("run.max_parallel_jobs", "0").contains("from 1"));
        assert!(check("run.memory", "lots").contains("16"));
        check("run.grace", "soon");
    }

    #[test]
    fn names_in_the_environment() {
        let variables: Vec<String> = KEYS.iter().map(SettingKey::environment_variable).collect();
        assert!(variables.contains(&"WINDLASS_DB".to_owned()));
        assert!(variables.contains(&"WINDLASS_RUN__MAX_PARALLEL_JOBS".to_owned()));
    }
}
