//! The command line as types. Only shapes and words live here; what a command does is in `commands/`.
//!
//! Nouns have verbs, and a noun alone lists. What Torc calls by a name is found here by the same name.

pub(crate) mod access_groups;
pub(crate) mod actions;
pub(crate) mod allocation_reconciler;
pub(crate) mod allocations;
mod argument_order;
pub(crate) mod auth;
pub(crate) mod backend;
pub(crate) mod catalog;
pub(crate) mod classify;
pub(crate) mod config_and_docs;
pub(crate) mod crud;
pub(crate) mod dag;
pub(crate) mod dagman_scripts;
pub(crate) mod db;
pub(crate) mod files_and_events;
pub(crate) mod help;
pub(crate) mod jobs;
pub(crate) mod list_options;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod nodes;
mod object_refs;
pub(crate) mod payload;
pub(crate) mod plan;
pub(crate) mod recover;
pub(crate) mod regenerate;
pub(crate) mod reqmgr2;
pub(crate) mod request;
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
pub(crate) mod triage;
pub(crate) mod usage_errors;
pub(crate) mod worker;
pub(crate) mod workers;
pub(crate) mod workflows;

pub(crate) use argument_order::move_subcommands_first;
pub(crate) use object_refs::{JobRef, WorkflowRef, WorkflowSet, WorkflowSetPart};
pub(crate) use run::{MachineArgs, OutputDirArgs, ParameterLink, parse_memory};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const ABOUT: &str = "Runs graphs of jobs to completion, and never gives back progress that was made.";

#[derive(Debug, Parser)]
#[command(name = "windlass", version, about = ABOUT)]
#[command(infer_subcommands = false, disable_help_subcommand = false, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: GlobalArgs,
    #[command(flatten)]
    pub(crate) torc: TorcGlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Use this database instead of looking for `.windlass/windlass.db` here and above: a file, or the URL of a PostgreSQL
    /// database. Its password goes into PGPASSWORD: what stands on a command line, everybody on the machine can read.
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) db: Option<PathBuf>,
    /// Talk to this server instead of using a database; also WINDLASS_URL.
    #[arg(long, alias = "server", value_name = "URL", global = true)]
    pub(crate) url: Option<String>,
    /// Trust the certificates in this file beside those of the system.
    #[arg(long, alias = "tls-ca-cert", value_name = "PATH", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Show this certificate, its chain behind it, to a server that knows you by one (PEM).
    #[arg(id = "client_cert", long = "cert", value_name = "PATH", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of the certificate, if it is in a file of its own (PEM).
    #[arg(id = "client_key", long = "key", value_name = "PATH", global = true)]
    pub(crate) key: Option<PathBuf>,
    /// Send the token also where others can read it: over http:// to another machine.
    #[arg(long, global = true)]
    pub(crate) insecure_http: bool,
    /// Print data as tables for people, or as JSON or CSV for programs.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table", global = true)]
    pub(crate) format: OutputFormat,
    /// Print only data, failures and errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output; `auto` colours a terminal unless NO_COLOR is set.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: ColorChoice,
}

/// Flags that Torc takes before its command, and that have nothing to do here.
#[derive(Debug, Args)]
pub(crate) struct TorcGlobalArgs {
    #[arg(long, value_name = "LEVEL", hide = true)]
    log_level: Option<String>,
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

    /// Those that were given and would have changed where Torc keeps its workflows.
    pub(crate) fn ignored_flags(&self) -> Vec<&'static str> {
        let given = [("--standalone", self.standalone), ("--in-memory", self.in_memory)];
        given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
    Csv,
    /// Only where a command says so, as are those that follow.
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

/// What can be done. A new command also gets a place in [`help::GROUPS`].
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a workflow from a spec file on this machine, or go on with it.
    Run(run::RunArgs),
    /// Go on with a workflow that was interrupted, killed, or left with failures.
    Resume(run::ResumeArgs),
    /// Run a list of commands, like GNU parallel, with everything a workflow has.
    Exec(run::ExecArgs),
    /// Check a spec file and store its workflow without running it.
    Create(run::CreateArgs),
    /// Hand a workflow to a server, whose workers run it, or to HTCondor.
    Submit(Box<run::SubmitArgs>),
    /// Show where a workflow stands.
    Status(workflows::WorkflowStatusArgs),
    /// List the workflows in this database, the newest first.
    List(workflows::WorkflowsListArgs),
    /// Workflows: list, get, update, archive, delete, list-actions, is-complete …
    Workflows(workflows::WorkflowsArgs),
    /// Jobs of a workflow: list, get, running, reset-status, spawn.
    Jobs(jobs::JobsArgs),
    /// Attempts that ended, with exit codes, times, memory: list, get.
    Results(jobs::ResultsArgs),
    /// What jobs printed: show, follow, analyze, bundle.
    Logs(logs::LogsArgs),
    /// Files that jobs read and write: list, get, list-required-existing.
    Files(files_and_events::FilesArgs),
    /// Data that jobs pass on: list, get, update, create, delete, list-missing.
    UserData(files_and_events::UserDataArgs),
    /// What happened, who did it and when: list, follow, create, get-latest-event.
    Events(files_and_events::EventsArgs),
    /// Who waits for whom, reads and writes what: job-job, job-file, job-user-data.
    JobDependencies(jobs::DependenciesArgs),
    /// What jobs ask for: list, get.
    ResourceRequirements(jobs::RequirementsArgs),
    /// What is to happen when jobs fail: list, get.
    FailureHandlers(jobs::HandlersArgs),
    /// What is done around the jobs, and how it went: list, show, retry.
    Actions(actions::ActionsArgs),
    /// The database as a whole: migrate, backup, check, copy.
    Db(db::DbArgs),
    /// Put workflows out of sight, or back.
    Archive(workflows::WorkflowArchiveArgs),
    /// Delete workflows with all that is known about them.
    Delete(workflows::WorkflowDeleteArgs),
    /// Write a workflow to a file that another database can import.
    Export(workflows::WorkflowExportArgs),
    /// Read a workflow that `export` wrote.
    Import(workflows::WorkflowImportArgs),
    /// Show what a spec or a workflow would do, and what has changed since it ran.
    Plan(plan::PlanArgs),
    /// Explain where a job stands, and what to type next.
    Why(plan::WhyArgs),
    /// What failed, in groups of what failed alike, and what is to become of them.
    Failures(triage::FailuresArgs),
    /// Failures that wait for a decision: list, show, retry, fail, ignore, approve, report …
    Triage(triage::TriageArgs),
    /// What somebody changed about failed and waiting jobs: list, show, undo.
    Revisions(triage::RevisionsArgs),
    /// Say of what class a failure is, from its log and how it ended.
    Classify(classify::ClassifyArgs),
    /// Bring a workflow back that stopped with failures: diagnose, ask for more, run again.
    Recover(recover::RecoverArgs),
    /// Follow a workflow until it is over, and recover it on the way.
    Watch(recover::WatchArgs),
    /// Have what changed since a workflow ran run again, with all that builds on it.
    Reinit(plan::ReinitArgs),
    /// Have jobs run again, and what was built on them.
    ResetStatus(plan::ResetStatusArgs),
    /// What jobs ask for and what they use: check, correct.
    Resources(resources::ResourcesArgs),
    /// Write better requirements, learned from what was used, into a spec file.
    Tune(resources::TuneArgs),
    /// Pictures of what was used: resources.
    Plot(resources::PlotArgs),
    /// As `windlass plot resources`; Torc's spelling.
    #[command(hide = true)]
    PlotResources(resources::PlotResourcesArgs),
    /// Spec files: schema, reference, convert, format.
    Spec(spec::SpecArgs),
    /// Stop a workflow for good: end what runs, start nothing more.
    Cancel(workflows::WorkflowCancelArgs),
    /// Run workflows of several people on many machines: a server for workers and clients.
    Serve(Box<serve::ServeArgs>),
    /// Tokens for programs that talk to a server: create, list, revoke.
    Token(auth::TokenArgs),
    /// The file of people who show passwords to a server: add, remove, verify, list.
    Password(auth::PasswordArgs),
    /// Keep a token for a server, so that commands with its URL find it.
    Login(auth::LoginArgs),
    /// Forget the token for a server.
    Logout(auth::LogoutArgs),
    /// Show who you are to a server, and what you may do there.
    Whoami,
    /// People who share workflows of a server: list, create, delete, add-user, share …
    AccessGroups(access_groups::AccessGroupsArgs),
    /// Datasets to be made: submit, run, list, show, plan, watch, stop …
    #[command(alias = "requests")]
    Request(request::RequestArgs),
    /// Runs of requests, on the engine or on HTCondor: list, show, nodes, logs, hold …
    #[command(alias = "dags")]
    Dag(dag::DagArgs),
    /// Where the work of requests runs: list, show, drain, enable, ban, unban, set.
    #[command(alias = "sites")]
    Site(site::SiteArgs),
    /// How many requests may be under way at once, and who is next: show, set.
    Admission(site::AdmissionArgs),
    /// Datasets, their files and where those are: add, list, show, import, forget.
    Catalog(catalog::CatalogArgs),
    /// Have this machine work for a server.
    Worker(worker::WorkerArgs),
    /// Workers on machines that ssh reaches: add, run, status, stop, collect-logs.
    Remote(worker::RemoteArgs),
    /// Those who work for a server: list, show, drain, retire.
    #[command(alias = "compute-nodes")]
    Workers(workers::WorkersArgs),
    /// Nodes that get no jobs for a while: list, set-aside, release.
    Nodes(nodes::NodesArgs),
    /// Ask a server how it is.
    Ping,
    /// Let an AI agent look at workflows, and act on them if you allow it: an MCP server.
    Mcp(mcp::McpArgs),
    /// What runs on a worker for a request: run, land, merge, cleanup, simulate.
    Payload(payload::PayloadArgs),
    /// What DAGMan of HTCondor calls for nodes of a request: post, elect, pre, unit.
    Condor(dagman_scripts::DagmanScriptArgs),
    /// What is asked of Slurm: plan, generate, regenerate, allocations, usage, audit …
    Slurm(Box<slurm::SlurmArgs>),
    /// What a cluster has, and where jobs fit: list, detect, show, partitions, match …
    Hpc(slurm::HpcArgs),
    /// Settings: show, paths, init, validate.
    Config(config_and_docs::ConfigArgs),
    /// Print the code that makes a shell complete the commands of windlass.
    Completions(config_and_docs::CompletionsArgs),
    /// Run a small workflow that explains itself.
    Demo(run::DemoArgs),
    /// Writes the man pages and the reference of the command line; not for people.
    #[command(name = "__docs", hide = true)]
    Docs(config_and_docs::DocsArgs),
    /// The process that a run starts to execute jobs; not for people.
    #[command(name = "__worker", hide = true)]
    WorkerProcess,
}

impl CliCommand {
    /// The values of `--format` that it knows.
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
            Self::Config(_) => {
                &[OutputFormat::Table, OutputFormat::Json, OutputFormat::Csv, OutputFormat::Toml]
            }
            _ if self.prints_tables() => OutputFormat::COMMON,
            _ => &[OutputFormat::Table, OutputFormat::Json],
        }
    }

    /// Whether what it prints has rows and columns.
    const fn prints_tables(&self) -> bool {
        use workflows::WorkflowsSubcommand::{Get, List, ListActions, Status};
        match self {
            Self::Status(_)
            | Self::List(_)
            | Self::Jobs(_)
            | Self::Results(_)
            | Self::Files(_)
            | Self::UserData(_)
            | Self::Events(_)
            | Self::JobDependencies(_)
            | Self::ResourceRequirements(_)
            | Self::FailureHandlers(_)
            | Self::Actions(_)
            | Self::Classify(_)
            | Self::Failures(_)
            | Self::Triage(_)
            | Self::Revisions(_)
            | Self::Token(_)
            | Self::AccessGroups(_)
            | Self::Remote(_)
            | Self::Nodes(_)
            | Self::Request(_)
            | Self::Dag(_)
            | Self::Site(_)
            | Self::Catalog(_)
            | Self::Slurm(_)
            | Self::Hpc(_)
            | Self::Workers(_) => true,
            Self::Workflows(args) => {
                matches!(args.verb, None | Some(List(_) | Get(_) | ListActions(_) | Status(_)))
            }
            _ => false,
        }
    }

    /// Works also where the settings are wrong: they are what it is about, or it uses none.
    pub(crate) const fn tolerates_invalid_config(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Completions(_) | Self::Docs(_) | Self::WorkerProcess)
    }
}

/// The whole command line as clap sees it, with help in groups.
pub(crate) fn build_command() -> clap::Command {
    help::group_commands(Cli::command())
}

pub(crate) fn from_matches(matches: &clap::ArgMatches) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(matches)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn parse(line: &[&str]) -> Result<CliCommand, clap::Error> {
        let words = std::iter::once(&"windlass").chain(line).map(std::ffi::OsString::from);
        let matches = build_command()
            .try_get_matches_from(move_subcommands_first(&build_command(), words.collect()))?;
        from_matches(&matches).map(|cli| cli.command.unwrap())
    }

    /// Every command, verbs included, as `windlass jobs list`.
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
    fn the_definition_is_sound() {
        build_command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_is_explained() {
        each_command(&mut |path, command| {
            assert!(command.get_about().is_some(), "{path}");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains(' '), "{path} {}: `{help}`", arg.get_id());
            }
        });
    }

    #[test]
    fn examples_survive_claps_own_placeholders() {
        // Clap takes `{n}` for a line break.
        each_command(&mut |path, command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.contains("{n}"), "{path}");
        });
    }

    #[test]
    fn workflows_are_named_by_id_name_last_or_range() {
        for (text, expected) in [("last", "last"), ("7", "7"), ("sim", "sim"), ("1-5,9", "1-5,9")] {
            let CliCommand::Status(args) = parse(&["status", text]).unwrap() else { panic!("not status") };
            assert_eq!(args.workflows, [expected.parse::<WorkflowSet>().unwrap()]);
        }
        let CliCommand::Status(args) = parse(&["status"]).unwrap() else { panic!("not status") };
        assert_eq!(args.workflows, ["last".parse::<WorkflowSet>().unwrap()]);
    }

    #[test]
    fn every_state_is_explained() {
        let mut cli = build_command();
        let help = cli.find_subcommand_mut("jobs").unwrap().render_long_help().to_string();
        for status in windlass_types::JobStatus::ALL {
            assert!(help.contains(&format!("\n  {:<14}  ", status.name())), "{status}\n{help}");
        }
    }

    #[test]
    fn what_torc_takes_before_its_command_is_understood() {
        let line =
            ["windlass", "-s", "--log-level", "info", "--url", "http://x", "-f", "csv", "jobs", "list", "3"];
        let cli = from_matches(&build_command().try_get_matches_from(line).unwrap()).unwrap();
        assert_eq!(cli.torc.ignored_flags(), ["--standalone"]);
        assert_eq!(cli.globals.url.as_deref(), Some("http://x"));
        assert_eq!(cli.globals.format, OutputFormat::Csv);
    }
}
