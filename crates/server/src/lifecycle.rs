//! The lifecycle of requests, as this server runs it.

use crate::options::ServeOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::requests::rounds;
use windlass_engine::service::Service;
use windlass_requests::{Lifecycle, LifecycleOptions, LocalCatalog, Nudge, Parts};
use windlass_store::{Database, Location};

/// Takes up all requests that are under way.
pub(crate) fn open(
    options: &ServeOptions,
    database: &Arc<dyn Database>,
    service: &Service,
    nudge: Nudge,
) -> io::Result<Lifecycle> {
    let catalog = LocalCatalog::new(Arc::clone(database), &options.requests.tape);
    let parts = Parts { books: Arc::clone(database), service: service.clone(), catalog: Arc::new(catalog) };
    Lifecycle::open(parts, nudge, lifecycle_options(options, &database.location())?)
}

fn lifecycle_options(options: &ServeOptions, location: &Location) -> io::Result<LifecycleOptions> {
    let wanted = &options.requests;
    let directory = match &wanted.directory {
        Some(directory) => directory.clone(),
        None => beside(location),
    };
    // Jobs are told these paths, wherever they run.
    let directory = std::path::absolute(directory)?;
    let mut lifecycle =
        LifecycleOptions::new(directory.join("requests"), directory.join("storage"), &options.owner);
    lifecycle.interval = options.look_for_requests;
    lifecycle.bell = wanted.bell.clone();
    lifecycle.cool_off = wanted.cool_off;
    lifecycle.backend = wanted.backend;
    lifecycle.condor = wanted.condor.clone();
    lifecycle.decisions.retry_after = wanted.retry_after;
    lifecycle.decisions.blame = wanted.blame.clone();
    lifecycle.decisions.recovery = rounds::Policy { rescue_pause: wanted.cool_off, ..wanted.recovery };
    lifecycle.decisions.mc_completion = wanted.mc_completion;
    lifecycle.plan.throttles.extend(wanted.throttles.clone());
    lifecycle.decisions.timeouts.clone_from(&wanted.timeouts);
    lifecycle.decisions.silence = wanted.silence;
    lifecycle.decisions.outputs = wanted.outputs.clone();
    lifecycle.plan.retries = wanted.retries;
    lifecycle.plan.adaptive = wanted.adaptive;
    lifecycle.plan.set_window(wanted.memory);
    Ok(lifecycle)
}

/// Where the database is, if it is a file; otherwise where a file would be.
fn beside(location: &Location) -> PathBuf {
    match location {
        Location::Sqlite(path) => path.parent().unwrap_or(Path::new(".")).to_owned(),
        Location::Postgres { .. } | Location::Server(_) => PathBuf::from(".windlass"),
    }
}
