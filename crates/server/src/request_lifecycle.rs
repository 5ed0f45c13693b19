//! Starts the request lifecycle in this server.

use crate::options::ServeOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::requests::rounds;
use windlass_requests::{
    LifecycleDependencies, LifecycleOptions, LocalCatalog, RequestLifecycle, RequestReconcilerWaker,
};
use windlass_scheduler::service::SchedulerHandle;
use windlass_store::{StoreDatabase, StoreLocation};

/// Resumes all active requests.
pub(crate) fn open_lifecycle(
    options: &ServeOptions,
    database: &Arc<dyn StoreDatabase>,
    service: &SchedulerHandle,
    waker: RequestReconcilerWaker,
) -> io::Result<RequestLifecycle> {
    let catalog = LocalCatalog::new(Arc::clone(database), &options.requests.tape_rse);
    let parts = LifecycleDependencies {
        database: Arc::clone(database),
        service: service.clone(),
        catalog: Arc::new(catalog),
    };
    RequestLifecycle::open(parts, waker, lifecycle_options(options, &database.location())?)
}

fn lifecycle_options(options: &ServeOptions, location: &StoreLocation) -> io::Result<LifecycleOptions> {
    let wanted = &options.requests;
    let directory = match &wanted.directory {
        Some(directory) => directory.clone(),
        None => database_directory(location),
    };
    // Jobs get these paths wherever they run.
    let directory = std::path::absolute(directory)?;
    let mut lifecycle = LifecycleOptions::new(directory.join("requests"), directory.join("storage"));
    lifecycle.workflow_owner.clone_from(&wanted.workflow_owner);
    lifecycle.interval = options.request_poll_interval;
    lifecycle.alert_notifier = wanted.alert_command.clone();
    lifecycle.cool_off = wanted.cool_off;
    lifecycle.backend = wanted.backend;
    lifecycle.condor = wanted.condor.clone();
    lifecycle.decision_settings.retry_after = wanted.retry_after;
    lifecycle.decision_settings.failure_response = wanted.failure_response.clone();
    lifecycle.decision_settings.recovery =
        rounds::RecoveryPolicy { rescue_pause: wanted.cool_off, ..wanted.recovery };
    lifecycle.decision_settings.mc_completion = wanted.mc_completion;
    lifecycle.plan_settings.throttles.extend(wanted.throttles.clone());
    lifecycle.decision_settings.timeouts.clone_from(&wanted.timeouts);
    lifecycle.decision_settings.unresponsive_after = wanted.backend_silence_limit;
    lifecycle.decision_settings.outputs = wanted.output_retries.clone();
    lifecycle.plan_settings.retries = wanted.retries;
    lifecycle.plan_settings.adaptive = wanted.adaptive;
    lifecycle.plan_settings.set_memory_window(wanted.memory_window);
    Ok(lifecycle)
}

/// Directory of the database file, or where one would be.
fn database_directory(location: &StoreLocation) -> PathBuf {
    match location {
        StoreLocation::Sqlite(path) => path.parent().unwrap_or(Path::new(".")).to_owned(),
        StoreLocation::Postgres { .. } | StoreLocation::Server(_) => PathBuf::from(".windlass"),
    }
}
