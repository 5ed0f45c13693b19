//! The command line as types. Only arguments and help texts are here; the commands are in `commands/`.
//!
//! Nouns have verbs, and most nouns alone list. Torc's spellings are in `old_spellings`.

pub(crate) mod access_groups;
pub(crate) mod actions;
pub(crate) mod allocation_reconciler;
pub(crate) mod allocations;
mod argument_order;
pub(crate) mod auth;
pub(crate) mod catalog;
pub(crate) mod classify;
pub(crate) mod config_and_docs;
pub(crate) mod crud;
pub(crate) mod dag;
pub(crate) mod dagman_scripts;
pub(crate) mod db;
pub(crate) mod failures;
pub(crate) mod files_and_events;
pub(crate) mod help;
pub(crate) mod jobs;
pub(crate) mod list_options;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod nodes;
mod object_refs;
pub(crate) mod old_spellings;
pub(crate) mod payload;
pub(crate) mod plan_and_reset;
pub(crate) mod recover;
pub(crate) mod regenerate;
pub(crate) mod reqmgr2;
pub(crate) mod request;
pub(crate) mod request_backend;
pub(crate) mod request_failure_policy;
pub(crate) mod request_operations;
pub(crate) mod request_timeouts;
pub(crate) mod resources;
pub(crate) mod rounds;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod site;
pub(crate) mod slurm;
pub(crate) mod slurm_reports;
pub(crate) mod slurm_worker;
pub(crate) mod spec;
pub(crate) mod usage_errors;
pub(crate) mod worker;
pub(crate) mod worker_subcommands;
pub(crate) mod workflows;

pub(crate) use argument_order::move_subcommands_first;
use config_and_docs::ConfigSubcommand;
pub(crate) use object_refs::{JobRef, WorkflowRef, WorkflowSet, WorkflowSetPart};
pub(crate) use old_spellings::replace_old_spelling;
pub(crate) use run::{MachineArgs, OutputDirArgs, ParameterLink, parse_memory};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const ABOUT: &str = "Runs workflows of jobs to completion, and never loses finished work.";

#[derive(Debug, Parser)]
#[command(name = "windlass", version, about = ABOUT)]
#[command(infer_subcommands = false, disable_help_subcommand = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: GlobalArgs,
    #[command(flatten)]
    pub(crate) torc: TorcGlobalArgs,
    /// Log decisions to standard error: error, warn, info, debug or trace; also per module, as
    /// windlass_scheduler=debug. Given before the command; also WINDLASS_LOG_LEVEL. `serve` has its own.
    #[arg(id = "root_log_level", long = "log-level", value_name = "LEVEL", value_parser = serve::parse_log_level)]
    pub(crate) log_level: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Database: a file, or the URL of a PostgreSQL database. Default: WINDLASS_DB, or the nearest
    /// `.windlass/windlass.db` in this directory or its parents. Set a PostgreSQL password in PGPASSWORD, not
    /// in the URL: other users can read command lines.
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) db: Option<PathBuf>,
    /// URL of a server to use instead of a database; also WINDLASS_URL.
    #[arg(long, alias = "server", value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// Trust the certificates in this file in addition to those of the system (PEM).
    #[arg(long, alias = "tls-ca-cert", value_name = "PATH", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Client certificate and chain (PEM).
    #[arg(id = "client_cert", long = "cert", value_name = "PATH", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM). Default: the file of --cert.
    #[arg(id = "client_key", long = "key", value_name = "PATH", global = true)]
    pub(crate) key: Option<PathBuf>,
    /// Allow sending the token to another machine over unencrypted HTTP. Others on the network can read it.
    #[arg(long, global = true)]
    pub(crate) insecure_http: bool,
    /// Output format: tables for people, JSON or CSV for programs.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table", global = true)]
    pub(crate) format: OutputFormat,
    /// Print only data, failures and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Color the output; `auto` colors a terminal unless NO_COLOR is set.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: ColorChoice,
}

/// Options that Torc accepts before its command, without effect here.
#[derive(Debug, Args)]
pub(crate) struct TorcGlobalArgs {
    #[arg(long, value_name = "WORD", hide = true)]
    password: Option<String>,
    #[arg(long, hide = true)]
    prompt_password: bool,
    #[arg(long, hide = true)]
    skip_version_check: bool,
    #[arg(long, hide = true)]
    tls_insecure: bool,
    #[arg(long, value_name = "TEXT", hide = true)]
    cookie_header: Option<String>,
    #[arg(short, long, hide = true)]
    standalone: bool,
    #[arg(long, value_name = "PATH", hide = true)]
    torc_server_bin: Option<PathBuf>,
    #[arg(long, hide = true)]
    in_memory: bool,
    #[arg(long, value_name = "N", hide = true)]
    snapshot_interval_seconds: Option<u64>,
}

impl TorcGlobalArgs {
    pub(crate) const fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The given options that would change what Torc does, each with the reason why it has no effect.
    pub(crate) fn ignored_flags(&self) -> Vec<(&'static str, &'static str)> {
        let no_server = "without a server, windlass uses a database file; `windlass serve` starts a server";
        let verified = "servers are always verified; `--ca-file` names a certificate to trust";
        let given = [
            (self.standalone, "--standalone", no_server),
            (self.in_memory, "--in-memory", no_server),
            (self.tls_insecure, "--tls-insecure", verified),
            (self.cookie_header.is_some(), "--cookie-header", "windlass sends no cookies"),
        ];
        given.into_iter().filter(|(given, ..)| *given).map(|(_, flag, why)| (flag, why)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
    Csv,
    /// Formats from here on are supported only by some commands.
    #[value(hide = true)]
    Toml,
    #[value(hide = true)]
    Text,
    #[value(hide = true)]
    Dot,
    #[value(hide = true)]
    Mermaid,
    #[value(hide = true)]
    Svg,
}

impl OutputFormat {
    pub(crate) const COMMON: &'static [Self] = &[Self::Table, Self::Json, Self::Csv];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Toml => "toml",
            Self::Text => "text",
            Self::Dot => "dot",
            Self::Mermaid => "mermaid",
            Self::Svg => "svg",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// The commands. A new one also gets a place in [`help::COMMAND_GROUPS`]; a renamed one an entry in `old_spellings`.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a workflow from a spec file on this machine, or continue it.
    Run(run::RunArgs),
    /// Continue a workflow that was interrupted or has failed jobs.
    Resume(run::ResumeArgs),
    /// Run a list of shell commands in parallel, like GNU parallel.
    Exec(run::ExecArgs),
    /// Validate a spec file and store its workflow without running it.
    Create(run::CreateArgs),
    /// Submit a workflow to a server, which runs it on its workers, or to HTCondor.
    Submit(Box<run::SubmitArgs>),
    /// Show what a spec or workflow would run, and what changed since its last run.
    Plan(plan_and_reset::PlanArgs),
    /// Follow a workflow until it ends, and optionally recover it from failures.
    Watch(recover::WatchArgs),
    /// Cancel a workflow: stop its running jobs and start no more.
    Cancel(workflows::WorkflowCancelArgs),
    /// Run a small example workflow.
    Demo(run::DemoArgs),
    /// Show the progress of a workflow.
    Status(workflows::WorkflowStatusArgs),
    /// Workflows: list, get, update, reinit, reset-status, archive, delete, export, import …
    Workflows(workflows::WorkflowsArgs),
    /// Jobs: list, get, running, results, files, user-data, dependencies, requirements …
    Jobs(jobs::JobsArgs),
    /// Logs of jobs: show, follow, analyze, bundle.
    Logs(logs::LogsArgs),
    /// Events of a workflow: list, follow, create, get-latest-event.
    Events(files_and_events::EventsArgs),
    /// Explain the state of a job, and suggest the next command.
    Why(plan_and_reset::WhyArgs),
    /// Recover a workflow from failures: diagnose, increase resources, retry.
    Recover(recover::RecoverArgs),
    /// Failed jobs, grouped by cause: list, show, retry, ignore, fail, undo, report …
    Failures(failures::FailuresArgs),
    /// Requested and used resources of jobs: check, correct, tune, plot.
    Resources(resources::ResourcesArgs),
    /// Requests for datasets: submit, run, list, show, watch, stop, dag, admission …
    #[command(alias = "requests")]
    Request(request::RequestArgs),
    /// Datasets, their files and locations: add, list, show, import, forget.
    Catalog(catalog::CatalogArgs),
    /// Sites where requests run: list, show, drain, enable, ban, unban, set.
    #[command(alias = "sites")]
    Site(site::SiteArgs),
    /// Start a worker on this machine, or manage workers: list, drain, retire, nodes, remote.
    Worker(Box<worker_subcommands::WorkerCommandArgs>),
    /// Slurm allocations: plan, generate, regenerate, list, cancel, usage, audit, hpc …
    Slurm(Box<slurm::SlurmArgs>),
    /// Run a server for workers and clients on many machines.
    Serve(Box<serve::ServeArgs>),
    /// Authentication: login, logout, whoami, token, password, access-groups, ping.
    Auth(auth::AuthArgs),
    /// Give an AI agent access to workflows, as an MCP server.
    Mcp(mcp::McpArgs),
    /// Spec files: schema, reference, convert, format.
    Spec(spec::SpecArgs),
    /// Maintain the database: migrate, backup, check, copy.
    Db(db::DbArgs),
    /// Settings: show, paths, init, validate, completions.
    Config(config_and_docs::ConfigArgs),
    /// Jobs of requests, started by workers: run, land, merge, cleanup, simulate.
    Payload(payload::PayloadArgs),
    /// Scripts that HTCondor's DAGMan calls for requests: post, elect, pre, unit.
    Condor(dagman_scripts::DagmanScriptArgs),
    /// Write the man pages and the command line reference; internal.
    #[command(name = "__docs", hide = true)]
    Docs(config_and_docs::DocsArgs),
    /// The worker process that a run starts to execute jobs; internal.
    #[command(name = "__worker", hide = true)]
    WorkerProcess,
}

impl CliCommand {
    /// The values of `--format` that this command supports.
    pub(crate) const fn supported_formats(&self) -> &'static [OutputFormat] {
        match self {
            Self::Plan(_) => &[
                OutputFormat::Table,
                OutputFormat::Text,
                OutputFormat::Json,
                OutputFormat::Dot,
                OutputFormat::Mermaid,
                OutputFormat::Svg,
            ],
            Self::Config(args) if !matches!(args.verb, ConfigSubcommand::Completions(_)) => {
                &[OutputFormat::Table, OutputFormat::Json, OutputFormat::Csv, OutputFormat::Toml]
            }
            _ if self.prints_tables() => OutputFormat::COMMON,
            _ => &[OutputFormat::Table, OutputFormat::Json],
        }
    }

    /// Whether the output has rows and columns.
    const fn prints_tables(&self) -> bool {
        use workflows::WorkflowsSubcommand::{Actions, Get, List, ListActions};
        match self {
            Self::Status(_)
            | Self::Jobs(_)
            | Self::Events(_)
            | Self::Failures(_)
            | Self::Site(_)
            | Self::Catalog(_)
            | Self::Slurm(_) => true,
            Self::Workflows(args) => {
                matches!(args.verb, None | Some(List(_) | Get(_) | ListActions(_) | Actions(_)))
            }
            Self::Request(args) => !matches!(args.verb, Some(request::RequestSubcommand::Admission(_))),
            Self::Worker(args) => {
                !matches!(args.verb, None | Some(worker_subcommands::WorkerSubcommand::Start(_)))
            }
            Self::Auth(args) => {
                matches!(args.verb, auth::AuthSubcommand::Token(_) | auth::AuthSubcommand::AccessGroups(_))
            }
            _ => false,
        }
    }

    /// Whether the command also runs with invalid settings, because it is about them or uses none.
    pub(crate) const fn tolerates_invalid_config(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Docs(_) | Self::WorkerProcess)
    }

    /// The given option of Torc that has no effect, with the reason.
    pub(crate) fn ignored_flag(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Create(args) => args.torc.ignored_flag(),
            Self::Submit(args) => args.create.torc.ignored_flag(),
            _ => None,
        }
    }
}

/// The complete command line, with help in groups and the global options on a page of their own.
pub(crate) fn build_command() -> clap::Command {
    help::group_commands(build_plain_command())
}

/// The same as clap derives it: help of each command lists the global options. For shell completions.
pub(crate) fn build_plain_command() -> clap::Command {
    help::add_short_forms(Cli::command())
}

pub(crate) fn from_matches(matches: &clap::ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    if let (Some(CliCommand::Serve(args)), Some(given)) =
        (&mut cli.command, matches.subcommand_matches("serve"))
    {
        args.given = serve::given_options(given);
    }
    Ok(cli)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parse(line: &[&str]) -> Result<CliCommand, clap::Error> {
        let words = std::iter::once(&"windlass").chain(line).map(std::ffi::OsString::from);
        let (words, _) = replace_old_spelling(&build_command(), words.collect());
        let matches =
            build_command().try_get_matches_from(move_subcommands_first(&build_command(), words))?;
        from_matches(&matches).map(|cli| cli.command.unwrap())
    }

    /// Every command with its path, such as `windlass jobs list`.
    fn each_command(check: &mut dyn FnMut(&str, &clap::Command)) {
        fn walk(path: &str, command: &clap::Command, check: &mut dyn FnMut(&str, &clap::Command)) {
            check(path, command);
            for inner in command.get_subcommands() {
                walk(&format!("{path} {}", inner.get_name()), inner, check);
            }
        }
        walk("windlass", &build_command(), check);
    }

    #[test]
    fn clap_command_definition_is_valid() {
        build_command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_has_help() {
        each_command(&mut |path, command| {
            assert!(command.get_about().is_some(), "{path}");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains(' '), "{path} {}: `{help}`", arg.get_id());
            }
        });
    }

    #[test]
    fn examples_contain_no_clap_placeholders() {
        // Clap replaces `{n}` by a line break.
        each_command(&mut |path, command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("{n}"), "{path}");
        });
    }

    #[test]
    fn workflow_is_selected_by_id_name_last_or_range() {
        for (text, expected) in [("last", "last"), ("7", "7"), ("sim", "sim"), ("1-5,9", "1-5,9")] {
            let CliCommand::Status(args) = parse(&["status", text]).unwrap() else { panic!("not status") };
            assert_eq!(args.workflows, [expected.parse::<WorkflowSet>().unwrap()]);
        }
        let CliCommand::Status(args) = parse(&["status"]).unwrap() else { panic!("not status") };
        assert_eq!(args.workflows, ["last".parse::<WorkflowSet>().unwrap()]);
    }

    #[test]
    fn help_explains_every_job_status() {
        let mut cli = build_command();
        let help = cli.find_subcommand_mut("jobs").unwrap().render_long_help().to_string();
        for status in windlass_types::JobStatus::ALL {
            assert!(help.contains(&format!("\n  {:<14}  ", status.name())), "{status}\n{help}");
        }
    }

    #[test]
    fn torc_global_options_before_command_are_accepted() {
        let line =
            ["windlass", "-s", "--log-level", "info", "--url", "http://x", "-f", "csv", "jobs", "list", "3"];
        let cli = from_matches(&build_command().try_get_matches_from(line).unwrap()).unwrap();
        assert_eq!(
            cli.torc.ignored_flags().iter().map(|(flag, _)| *flag).collect::<Vec<_>>(),
            ["--standalone"]
        );
        assert_eq!(cli.globals.url.as_deref(), Some("http://x"));
        assert_eq!(cli.globals.format, OutputFormat::Csv);
    }
}
