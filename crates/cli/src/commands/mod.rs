//! One module per command. Each has functions that take the context and the arguments and return the exit code.

mod access_groups;
mod actions;
mod analyze;
mod bundle;
pub(crate) mod cancel;
mod catalog;
mod classify;
mod completions;
mod config;
mod create;
mod dag;
pub(crate) mod dagman_scripts;
mod db;
mod demo;
mod docs;
mod edit_jobs;
mod edit_objects;
pub(crate) mod events;
mod exec;
mod export_import;
mod failures;
mod files;
mod hpc;
mod job_relations;
mod jobs;
mod logs;
mod manage_workflows;
mod mcp;
mod nodes;
mod password;
mod payload;
mod pending_failures;
mod ping;
mod plan;
pub(crate) mod plot;
mod recover;
mod reinit;
mod remote;
mod request;
mod reset_status;
mod resources;
mod results;
mod resume;
mod revisions;
mod run;
mod serve;
mod site;
pub(crate) mod slurm;
mod spawn;
mod spec;
mod status;
mod submit;
mod sync_status;
mod token;
mod tune;
mod user_data;
mod watch;
pub(crate) mod why;
pub(crate) mod worker;
mod worker_list;
mod workflow_parts;
pub(crate) mod workflows;

use crate::args::CliCommand;
use crate::args::auth::AuthSubcommand;
use crate::args::files_and_events::FilesSubcommand;
use crate::args::jobs::{JobsSubcommand, ResultsSubcommand};
use crate::args::logs::LogsSubcommand;
use crate::args::workflows::WorkflowsSubcommand;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};

pub(crate) fn dispatch_command(ctx: &CliContext, command: &CliCommand) -> Result<CliExit, CliError> {
    match command {
        CliCommand::Run(args) => run::run(ctx, args),
        CliCommand::Resume(args) => resume::run(ctx, args),
        CliCommand::Exec(args) => exec::run(ctx, args),
        CliCommand::Create(args) => create::run(ctx, args),
        CliCommand::Submit(args) => submit::run(ctx, args),
        CliCommand::Plan(args) => plan::run(ctx, args),
        CliCommand::Watch(args) => watch::run(ctx, args),
        CliCommand::Cancel(args) => cancel::run(ctx, args),
        CliCommand::Demo(args) => demo::run(ctx, args),
        CliCommand::Status(args) => status::run(ctx, args),
        CliCommand::Workflows(args) => match &args.verb {
            None => workflows::list_workflows(ctx, &args.list),
            Some(verb) => dispatch_workflows(ctx, verb),
        },
        CliCommand::Jobs(args) => match &args.verb {
            None => jobs::list_jobs(ctx, &args.list),
            Some(verb) => dispatch_jobs(ctx, verb),
        },
        CliCommand::Logs(args) => match (&args.verb, &args.show) {
            (Some(LogsSubcommand::Show(args)), _) | (None, Some(args)) => logs::show_logs(ctx, args),
            (Some(LogsSubcommand::Follow(args)), _) => logs::follow_logs(ctx, args),
            (Some(LogsSubcommand::Analyze(args)), _) => analyze::run(ctx, args),
            (Some(LogsSubcommand::Bundle(args)), _) => bundle::run(ctx, args),
            // Clap prints the help instead.
            (None, None) => Err(CliError::user("no job given")),
        },
        CliCommand::Events(args) => match &args.verb {
            None => events::list_events(ctx, &args.list),
            Some(verb) => events::run(ctx, verb),
        },
        CliCommand::Why(args) => why::run(ctx, args),
        CliCommand::Recover(args) => recover::run(ctx, args),
        CliCommand::Failures(args) => failures::run(ctx, args),
        CliCommand::Resources(args) => resources::run(ctx, args),
        CliCommand::Request(args) => request::run(ctx, args),
        CliCommand::Catalog(args) => catalog::run(ctx, args),
        CliCommand::Site(args) => site::run(ctx, args),
        CliCommand::Worker(args) => match &args.verb {
            None => worker::run(ctx, &args.start),
            Some(verb) => worker_list::run(ctx, verb),
        },
        CliCommand::Slurm(args) => slurm::run(ctx, &args.verb),
        CliCommand::Serve(args) => serve::run(ctx, args),
        CliCommand::Auth(args) => dispatch_auth(ctx, &args.verb),
        CliCommand::Mcp(args) => mcp::run(ctx, args),
        CliCommand::Spec(args) => spec::run(ctx, args),
        CliCommand::Db(args) => db::run(ctx, args),
        CliCommand::Config(args) => config::run(ctx, args),
        CliCommand::Payload(args) => payload::run(ctx, &args.verb),
        CliCommand::Condor(args) => std::process::exit(dagman_scripts::run_script_command(&args.verb).into()),
        CliCommand::Docs(args) => docs::run(args),
        CliCommand::WorkerProcess => crate::local_worker::run_worker(),
    }
}

fn dispatch_workflows(ctx: &CliContext, verb: &WorkflowsSubcommand) -> Result<CliExit, CliError> {
    match verb {
        WorkflowsSubcommand::List(args) => workflows::list_workflows(ctx, args),
        WorkflowsSubcommand::Get(args) => workflows::show_workflow(ctx, args),
        WorkflowsSubcommand::New(args) => edit_jobs::new_workflow(ctx, args),
        WorkflowsSubcommand::Update(args) => manage_workflows::update_workflow(ctx, args),
        WorkflowsSubcommand::Reinit(args) => reinit::run(ctx, args),
        WorkflowsSubcommand::ResetStatus(args) => reset_status::run(ctx, args),
        WorkflowsSubcommand::SyncStatus(args) => sync_status::run(ctx, args),
        WorkflowsSubcommand::Init(args) => reinit::check_workflow_inputs(ctx, args),
        WorkflowsSubcommand::IsComplete(args) => workflows::check_complete(ctx, args),
        WorkflowsSubcommand::Archive(args) => manage_workflows::archive_workflows(ctx, args),
        WorkflowsSubcommand::Delete(args) => manage_workflows::delete_workflows(ctx, args),
        WorkflowsSubcommand::Export(args) => export_import::export_workflow(ctx, args),
        WorkflowsSubcommand::Import(args) => export_import::import_workflow(ctx, args),
        WorkflowsSubcommand::Actions(args) => actions::run(ctx, args),
        WorkflowsSubcommand::ListActions(args) => workflow_parts::list_actions(ctx, args),
    }
}

fn dispatch_jobs(ctx: &CliContext, verb: &JobsSubcommand) -> Result<CliExit, CliError> {
    match verb {
        JobsSubcommand::List(args) => jobs::list_jobs(ctx, args),
        JobsSubcommand::Get(args) => jobs::show_job(ctx, args),
        JobsSubcommand::Running(args) => jobs::list_running_jobs(ctx, args),
        JobsSubcommand::Create(args) => edit_jobs::create_job(ctx, args),
        JobsSubcommand::CreateFromFile(args) => edit_jobs::create_jobs_from_file(ctx, args),
        JobsSubcommand::Update(args) => edit_jobs::update_job(ctx, args),
        JobsSubcommand::Delete(args) => edit_jobs::delete_jobs(ctx, args),
        JobsSubcommand::DeleteAll(args) => edit_jobs::delete_all_jobs(ctx, args),
        JobsSubcommand::ListResourceRequirements(args) => workflow_parts::list_job_requirements(ctx, args),
        JobsSubcommand::ListFailureHandlers(args) => workflow_parts::list_job_handlers(ctx, args),
        JobsSubcommand::ResetStatus(args) => reset_status::reset_named_jobs(ctx, args),
        JobsSubcommand::Spawn(args) => spawn::run(ctx, args),
        JobsSubcommand::Results(args) => match &args.verb {
            None => results::list_results(ctx, &args.list),
            Some(ResultsSubcommand::List(args)) => results::list_results(ctx, args),
            Some(ResultsSubcommand::Get(args)) => results::show_result(ctx, args),
            Some(ResultsSubcommand::Delete(args)) => edit_objects::delete_result(ctx, args),
        },
        JobsSubcommand::Files(args) => match &args.verb {
            None => files::list_files(ctx, &args.list),
            Some(FilesSubcommand::List(args)) => files::list_files(ctx, args),
            Some(FilesSubcommand::Get(args)) => files::show_file(ctx, args),
            Some(FilesSubcommand::Create(args)) => edit_objects::create_file(ctx, args),
            Some(FilesSubcommand::Update(args)) => edit_objects::update_file(ctx, args),
            Some(FilesSubcommand::Delete(args)) => edit_objects::delete_file(ctx, args),
            Some(FilesSubcommand::ListRequiredExisting(args)) => files::list_required_files(ctx, args),
        },
        JobsSubcommand::UserData(args) => match &args.verb {
            None => user_data::list_user_data(ctx, &args.list),
            Some(verb) => user_data::run(ctx, verb),
        },
        JobsSubcommand::Dependencies(args) => job_relations::run(ctx, &args.verb),
        JobsSubcommand::Requirements(args) => match &args.verb {
            None => workflow_parts::list_requirements(ctx, &args.list),
            Some(verb) => workflow_parts::dispatch_requirements(ctx, verb),
        },
    }
}

fn dispatch_auth(ctx: &CliContext, verb: &AuthSubcommand) -> Result<CliExit, CliError> {
    match verb {
        AuthSubcommand::Login(args) => token::login(ctx, args),
        AuthSubcommand::Logout(args) => token::logout(ctx, args),
        AuthSubcommand::Whoami => token::show_identity(ctx),
        AuthSubcommand::Token(args) => token::run(ctx, &args.verb),
        AuthSubcommand::Password(args) => password::run(ctx, &args.verb),
        AuthSubcommand::AccessGroups(args) => access_groups::run(ctx, &args.verb),
        AuthSubcommand::Ping => ping::run(ctx),
    }
}
