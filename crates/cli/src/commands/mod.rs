//! One file per noun or verb. Each has functions that take the context and the arguments, and say how the program exits.

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
mod triage;
mod tune;
mod user_data;
mod watch;
pub(crate) mod why;
pub(crate) mod worker;
mod workers;
mod workflow_parts;
pub(crate) mod workflows;

use crate::args::CliCommand;
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
        CliCommand::Status(args) => status::run(ctx, args),
        CliCommand::List(args) => workflows::list_workflows(ctx, args),
        CliCommand::Workflows(args) => match &args.verb {
            None => workflows::list_workflows(ctx, &args.list),
            Some(verb) => dispatch_workflows(ctx, verb),
        },
        CliCommand::Jobs(args) => match &args.verb {
            None => jobs::list_jobs(ctx, &args.list),
            Some(JobsSubcommand::List(args)) => jobs::list_jobs(ctx, args),
            Some(JobsSubcommand::Get(args)) => jobs::show_job(ctx, args),
            Some(JobsSubcommand::Running(args)) => jobs::list_running_jobs(ctx, args),
            Some(JobsSubcommand::Create(args)) => edit_jobs::create_job(ctx, args),
            Some(JobsSubcommand::CreateFromFile(args)) => edit_jobs::create_jobs_from_file(ctx, args),
            Some(JobsSubcommand::Update(args)) => edit_jobs::update_job(ctx, args),
            Some(JobsSubcommand::Delete(args)) => edit_jobs::delete_jobs(ctx, args),
            Some(JobsSubcommand::DeleteAll(args)) => edit_jobs::delete_all_jobs(ctx, args),
            Some(JobsSubcommand::ListResourceRequirements(args)) => {
                workflow_parts::list_job_requirements(ctx, args)
            }
            Some(JobsSubcommand::ListFailureHandlers(args)) => workflow_parts::list_job_handlers(ctx, args),
            Some(JobsSubcommand::ResetStatus(args)) => reset_status::reset_named_jobs(ctx, args),
            Some(JobsSubcommand::Spawn(args)) => spawn::run(ctx, args),
        },
        CliCommand::Results(args) => match &args.verb {
            None => results::list_results(ctx, &args.list),
            Some(ResultsSubcommand::List(args)) => results::list_results(ctx, args),
            Some(ResultsSubcommand::Get(args)) => results::show_result(ctx, args),
            Some(ResultsSubcommand::Delete(args)) => edit_objects::delete_result(ctx, args),
        },
        CliCommand::Logs(args) => match (&args.verb, &args.show) {
            (Some(LogsSubcommand::Show(args)), _) | (None, Some(args)) => logs::show_logs(ctx, args),
            (Some(LogsSubcommand::Follow(args)), _) => logs::follow_logs(ctx, args),
            (Some(LogsSubcommand::Analyze(args)), _) => analyze::run(ctx, args),
            (Some(LogsSubcommand::Bundle(args)), _) => bundle::run(ctx, args),
            // Clap shows the help instead.
            (None, None) => Err(CliError::user("which job?")),
        },
        CliCommand::Files(args) => match &args.verb {
            None => files::list_files(ctx, &args.list),
            Some(FilesSubcommand::List(args)) => files::list_files(ctx, args),
            Some(FilesSubcommand::Get(args)) => files::show_file(ctx, args),
            Some(FilesSubcommand::Create(args)) => edit_objects::create_file(ctx, args),
            Some(FilesSubcommand::Update(args)) => edit_objects::update_file(ctx, args),
            Some(FilesSubcommand::Delete(args)) => edit_objects::delete_file(ctx, args),
            Some(FilesSubcommand::ListRequiredExisting(args)) => files::list_required_files(ctx, args),
        },
        CliCommand::UserData(args) => match &args.verb {
            None => user_data::list_user_data(ctx, &args.list),
            Some(verb) => user_data::run(ctx, verb),
        },
        CliCommand::Events(args) => match &args.verb {
            None => events::list_events(ctx, &args.list),
            Some(verb) => events::run(ctx, verb),
        },
        CliCommand::JobDependencies(args) => job_relations::run(ctx, &args.verb),
        CliCommand::ResourceRequirements(args) => match &args.verb {
            None => workflow_parts::list_requirements(ctx, &args.list),
            Some(verb) => workflow_parts::dispatch_requirements(ctx, verb),
        },
        CliCommand::FailureHandlers(args) => match &args.verb {
            None => workflow_parts::list_handlers(ctx, &args.list),
            Some(verb) => workflow_parts::dispatch_handlers(ctx, verb),
        },
        CliCommand::Db(args) => db::run(ctx, args),
        CliCommand::Archive(args) => manage_workflows::archive_workflows(ctx, args),
        CliCommand::Delete(args) => manage_workflows::delete_workflows(ctx, args),
        CliCommand::Export(args) => export_import::export_workflow(ctx, args),
        CliCommand::Import(args) => export_import::import_workflow(ctx, args),
        CliCommand::Why(args) => why::run(ctx, args),
        CliCommand::Failures(args) => failures::run(ctx, args),
        CliCommand::Triage(args) => triage::run(ctx, args),
        CliCommand::Revisions(args) => revisions::run(ctx, args),
        CliCommand::Classify(args) => classify::run(ctx, args),
        CliCommand::Recover(args) => recover::run(ctx, args),
        CliCommand::Watch(args) => watch::run(ctx, args),
        CliCommand::Plan(args) => plan::run(ctx, args),
        CliCommand::Tune(args) => tune::run(ctx, args),
        CliCommand::Plot(args) => plot::run(ctx, args),
        CliCommand::PlotResources(args) => plot::plot_resources(ctx, args),
        CliCommand::Reinit(args) => reinit::run(ctx, args),
        CliCommand::Resources(args) => resources::run(ctx, args),
        CliCommand::Spec(args) => spec::run(ctx, args),
        CliCommand::ResetStatus(args) => reset_status::run(ctx, args),
        CliCommand::Cancel(args) => cancel::run(ctx, args),
        CliCommand::Serve(args) => serve::run(ctx, args),
        CliCommand::Token(args) => token::run(ctx, &args.verb),
        CliCommand::Password(args) => password::run(ctx, &args.verb),
        CliCommand::Login(args) => token::login(ctx, args),
        CliCommand::Logout(args) => token::logout(ctx, args),
        CliCommand::Whoami => token::show_identity(ctx),
        CliCommand::AccessGroups(args) => access_groups::run(ctx, &args.verb),
        CliCommand::Actions(args) => actions::run(ctx, args),
        CliCommand::Workers(args) => workers::run(ctx, args),
        CliCommand::Nodes(args) => nodes::run(ctx, args),
        CliCommand::Ping => ping::run(ctx),
        CliCommand::Mcp(args) => mcp::run(ctx, args),
        CliCommand::Payload(args) => payload::run(ctx, &args.verb),
        CliCommand::Condor(args) => std::process::exit(dagman_scripts::run_script_command(&args.verb).into()),
        CliCommand::Slurm(args) => slurm::run(ctx, &args.verb),
        CliCommand::Hpc(args) => hpc::run(ctx, &args.verb),
        CliCommand::Config(args) => config::run(ctx, args),
        CliCommand::Completions(args) => completions::run(ctx, args),
        CliCommand::Demo(args) => demo::run(ctx, args),
        CliCommand::Docs(args) => docs::run(args),
        CliCommand::Request(args) => request::run(ctx, args),
        CliCommand::Dag(args) => dag::run(ctx, args),
        CliCommand::Site(args) => site::run(ctx, args),
        CliCommand::Admission(args) => site::dispatch_admission(ctx, args),
        CliCommand::Catalog(args) => catalog::run(ctx, args),
        CliCommand::Worker(args) => worker::run(ctx, args),
        CliCommand::Remote(args) => remote::run(ctx, &args.verb),
        CliCommand::WorkerProcess => crate::local_worker::run_worker(),
    }
}

fn dispatch_workflows(ctx: &CliContext, verb: &WorkflowsSubcommand) -> Result<CliExit, CliError> {
    match verb {
        WorkflowsSubcommand::List(args) => workflows::list_workflows(ctx, args),
        WorkflowsSubcommand::Get(args) => workflows::show_workflow(ctx, args),
        WorkflowsSubcommand::New(args) => edit_jobs::new_workflow(ctx, args),
        WorkflowsSubcommand::Update(args) => manage_workflows::update_workflow(ctx, args),
        WorkflowsSubcommand::Archive(args) => manage_workflows::torc_archive_workflows(ctx, args),
        WorkflowsSubcommand::Delete(args) => manage_workflows::delete_workflows(ctx, args),
        WorkflowsSubcommand::ListActions(args) => workflow_parts::list_actions(ctx, args),
        WorkflowsSubcommand::Export(args) => export_import::export_workflow(ctx, args),
        WorkflowsSubcommand::Import(args) => export_import::import_workflow(ctx, args),
        WorkflowsSubcommand::IsComplete(args) => workflows::check_complete(ctx, args),
        WorkflowsSubcommand::Init(args) => reinit::check_workflow_inputs(ctx, args),
        WorkflowsSubcommand::Reinit(args) => reinit::run(ctx, args),
        WorkflowsSubcommand::ExecutionPlan(args) => plan::run(ctx, args),
        WorkflowsSubcommand::CheckResources(args) => resources::check(ctx, args),
        WorkflowsSubcommand::CorrectResources(args) => resources::correct_requirements(ctx, args),
        WorkflowsSubcommand::ResetStatus(args) => reset_status::run(ctx, args),
        WorkflowsSubcommand::SyncStatus(args) => sync_status::run(ctx, args),
        WorkflowsSubcommand::Run(args) => run::run(ctx, args),
        WorkflowsSubcommand::Create(args) => create::run(ctx, args),
        WorkflowsSubcommand::Status(args) => status::run(ctx, args),
        WorkflowsSubcommand::Cancel(args) => cancel::run(ctx, args),
    }
}
