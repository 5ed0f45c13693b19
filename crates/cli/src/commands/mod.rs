//! One file per noun or verb. Each has functions that take the context and the arguments, and say how the program exits.

mod access_groups;
mod actions;
mod analyze;
mod bundle;
pub(crate) mod cancel;
mod catalog;
mod classify;
mod completions;
pub(crate) mod condor;
mod config;
mod create;
mod dag;
mod db;
mod demo;
mod docs;
mod edit_jobs;
mod edit_parts;
pub(crate) mod events;
mod exec;
mod failures;
mod files;
mod hpc;
mod jobs;
mod logs;
mod manage;
mod mcp;
mod nodes;
mod parts;
mod password;
mod payload;
mod ping;
mod plan;
pub(crate) mod plot;
mod recover;
mod reinit;
mod relations;
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
mod transfer;
mod triage;
mod tune;
mod user_data;
mod watch;
pub(crate) mod why;
pub(crate) mod worker;
mod workers;
pub(crate) mod workflows;

use crate::args::Command;
use crate::args::data::FilesVerb;
use crate::args::jobs::{JobsVerb, ResultsVerb};
use crate::args::logs::LogsVerb;
use crate::args::workflows::WorkflowsVerb;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn dispatch(ctx: &Context, command: &Command) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => run::run(ctx, args),
        Command::Resume(args) => resume::run(ctx, args),
        Command::Exec(args) => exec::run(ctx, args),
        Command::Create(args) => create::run(ctx, args),
        Command::Submit(args) => submit::run(ctx, args),
        Command::Status(args) => status::run(ctx, args),
        Command::List(args) => workflows::list(ctx, args),
        Command::Workflows(args) => match &args.verb {
            None => workflows::list(ctx, &args.list),
            Some(verb) => workflows_verb(ctx, verb),
        },
        Command::Jobs(args) => match &args.verb {
            None => jobs::list(ctx, &args.list),
            Some(JobsVerb::List(args)) => jobs::list(ctx, args),
            Some(JobsVerb::Get(args)) => jobs::get(ctx, args),
            Some(JobsVerb::Running(args)) => jobs::running(ctx, args),
            Some(JobsVerb::Create(args)) => edit_jobs::create(ctx, args),
            Some(JobsVerb::CreateFromFile(args)) => edit_jobs::create_from_file(ctx, args),
            Some(JobsVerb::Update(args)) => edit_jobs::update(ctx, args),
            Some(JobsVerb::Delete(args)) => edit_jobs::delete(ctx, args),
            Some(JobsVerb::DeleteAll(args)) => edit_jobs::delete_all(ctx, args),
            Some(JobsVerb::ListResourceRequirements(args)) => parts::jobs_requirements(ctx, args),
            Some(JobsVerb::ListFailureHandlers(args)) => parts::jobs_handlers(ctx, args),
            Some(JobsVerb::ResetStatus(args)) => reset_status::run_for_jobs(ctx, args),
            Some(JobsVerb::Spawn(args)) => spawn::run(ctx, args),
        },
        Command::Results(args) => match &args.verb {
            None => results::list(ctx, &args.list),
            Some(ResultsVerb::List(args)) => results::list(ctx, args),
            Some(ResultsVerb::Get(args)) => results::get(ctx, args),
            Some(ResultsVerb::Delete(args)) => edit_parts::delete_result(ctx, args),
        },
        Command::Logs(args) => match (&args.verb, &args.show) {
            (Some(LogsVerb::Show(args)), _) | (None, Some(args)) => logs::show(ctx, args),
            (Some(LogsVerb::Follow(args)), _) => logs::follow(ctx, args),
            (Some(LogsVerb::Analyze(args)), _) => analyze::run(ctx, args),
            (Some(LogsVerb::Bundle(args)), _) => bundle::run(ctx, args),
            // Clap shows the help instead.
            (None, None) => Err(CliError::user("which job?")),
        },
        Command::Files(args) => match &args.verb {
            None => files::list(ctx, &args.list),
            Some(FilesVerb::List(args)) => files::list(ctx, args),
            Some(FilesVerb::Get(args)) => files::get(ctx, args),
            Some(FilesVerb::Create(args)) => edit_parts::create_file(ctx, args),
            Some(FilesVerb::Update(args)) => edit_parts::update_file(ctx, args),
            Some(FilesVerb::Delete(args)) => edit_parts::delete_file(ctx, args),
            Some(FilesVerb::ListRequiredExisting(args)) => files::list_required(ctx, args),
        },
        Command::UserData(args) => match &args.verb {
            None => user_data::list(ctx, &args.list),
            Some(verb) => user_data::run(ctx, verb),
        },
        Command::Events(args) => match &args.verb {
            None => events::list(ctx, &args.list),
            Some(verb) => events::run(ctx, verb),
        },
        Command::JobDependencies(args) => relations::run(ctx, &args.verb),
        Command::ResourceRequirements(args) => match &args.verb {
            None => parts::requirements(ctx, &args.list),
            Some(verb) => parts::requirements_verb(ctx, verb),
        },
        Command::FailureHandlers(args) => match &args.verb {
            None => parts::handlers(ctx, &args.list),
            Some(verb) => parts::handlers_verb(ctx, verb),
        },
        Command::Db(args) => db::run(ctx, args),
        Command::Archive(args) => manage::archive(ctx, args),
        Command::Delete(args) => manage::delete(ctx, args),
        Command::Export(args) => transfer::export(ctx, args),
        Command::Import(args) => transfer::import(ctx, args),
        Command::Why(args) => why::run(ctx, args),
        Command::Failures(args) => failures::run(ctx, args),
        Command::Triage(args) => triage::run(ctx, args),
        Command::Revisions(args) => revisions::run(ctx, args),
        Command::Classify(args) => classify::run(ctx, args),
        Command::Recover(args) => recover::run(ctx, args),
        Command::Watch(args) => watch::run(ctx, args),
        Command::Plan(args) => plan::run(ctx, args),
        Command::Tune(args) => tune::run(ctx, args),
        Command::Plot(args) => plot::run(ctx, args),
        Command::PlotResources(args) => plot::resources(ctx, args),
        Command::Reinit(args) => reinit::run(ctx, args),
        Command::Resources(args) => resources::run(ctx, args),
        Command::Spec(args) => spec::run(ctx, args),
        Command::ResetStatus(args) => reset_status::run(ctx, args),
        Command::Cancel(args) => cancel::run(ctx, args),
        Command::Serve(args) => serve::run(ctx, args),
        Command::Token(args) => token::run(ctx, &args.verb),
        Command::Password(args) => password::run(ctx, &args.verb),
        Command::Login(args) => token::login(ctx, args),
        Command::Logout(args) => token::logout(ctx, args),
        Command::Whoami => token::whoami(ctx),
        Command::AccessGroups(args) => access_groups::run(ctx, &args.verb),
        Command::Actions(args) => actions::run(ctx, args),
        Command::Workers(args) => workers::run(ctx, args),
        Command::Nodes(args) => nodes::run(ctx, args),
        Command::Ping => ping::run(ctx),
        Command::Mcp(args) => mcp::run(ctx, args),
        Command::Payload(args) => payload::run(ctx, &args.verb),
        Command::Condor(args) => std::process::exit(condor::run(&args.verb).into()),
        Command::Slurm(args) => slurm::run(ctx, &args.verb),
        Command::Hpc(args) => hpc::run(ctx, &args.verb),
        Command::Config(args) => config::run(ctx, args),
        Command::Completions(args) => completions::run(ctx, args),
        Command::Demo(args) => demo::run(ctx, args),
        Command::Docs(args) => docs::run(args),
        Command::Request(args) => request::run(ctx, args),
        Command::Dag(args) => dag::run(ctx, args),
        Command::Site(args) => site::run(ctx, args),
        Command::Admission(args) => site::admission(ctx, args),
        Command::Catalog(args) => catalog::run(ctx, args),
        Command::Worker(args) => worker::run(ctx, args),
        Command::Remote(args) => remote::run(ctx, &args.verb),
        Command::WorkerProcess => crate::local::worker(),
    }
}

fn workflows_verb(ctx: &Context, verb: &WorkflowsVerb) -> Result<Exit, CliError> {
    match verb {
        WorkflowsVerb::List(args) => workflows::list(ctx, args),
        WorkflowsVerb::Get(args) => workflows::get(ctx, args),
        WorkflowsVerb::New(args) => edit_jobs::new_workflow(ctx, args),
        WorkflowsVerb::Update(args) => manage::update(ctx, args),
        WorkflowsVerb::Archive(args) => manage::torc_archive(ctx, args),
        WorkflowsVerb::Delete(args) => manage::delete(ctx, args),
        WorkflowsVerb::ListActions(args) => parts::actions(ctx, args),
        WorkflowsVerb::Export(args) => transfer::export(ctx, args),
        WorkflowsVerb::Import(args) => transfer::import(ctx, args),
        WorkflowsVerb::IsComplete(args) => workflows::is_complete(ctx, args),
        WorkflowsVerb::Init(args) => reinit::init(ctx, args),
        WorkflowsVerb::Reinit(args) => reinit::run(ctx, args),
        WorkflowsVerb::ExecutionPlan(args) => plan::run(ctx, args),
        WorkflowsVerb::CheckResources(args) => resources::check(ctx, args),
        WorkflowsVerb::CorrectResources(args) => resources::correct(ctx, args),
        WorkflowsVerb::ResetStatus(args) => reset_status::run(ctx, args),
        WorkflowsVerb::SyncStatus(args) => sync_status::run(ctx, args),
        WorkflowsVerb::Run(args) => run::run(ctx, args),
        WorkflowsVerb::Create(args) => create::run(ctx, args),
        WorkflowsVerb::Status(args) => status::run(ctx, args),
        WorkflowsVerb::Cancel(args) => cancel::run(ctx, args),
    }
}
