//! The steward of allocations, as this server runs it, and what people ask Slurm through it.

use crate::discovery::TOKEN_FILE;
use crate::error::{Answer, ApiError};
use crate::options::ServeOptions;
use crate::state::AppState;
use axum::http::StatusCode;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use windlass_api::slurm::SlurmAccount;
use windlass_core::slurm::home;
use windlass_core::slurm::profile::Profile;
use windlass_engine::service::Service;
use windlass_slurm::accounts::{self, NoAccounts};
use windlass_slurm::calls::{Slurm, Unknown};
use windlass_slurm::discover::{self, DiscoverError};
use windlass_slurm::steward::{Nudge, Parts, Steward, StewardOptions};
use windlass_store::{Database, Location};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{Clock, WorkflowId};

/// Takes up all allocations that are open, if this server looks after some. `url` is where workers find it unless something
/// else was said.
pub(crate) fn open(
    options: &ServeOptions,
    database: &Arc<dyn Database>,
    service: &Service,
    nudge: Nudge,
    url: &str,
) -> io::Result<Option<Steward>> {
    let Some(wanted) = &options.slurm else { return Ok(None) };
    let windlass = match &wanted.windlass {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let server = wanted.worker_url.as_deref().unwrap_or(url);
    let mut steward = StewardOptions::new(server, windlass);
    // Where a path leads by several ways it is one place.
    let place = match database.location() {
        Location::Sqlite(path) => std::fs::canonicalize(&path).unwrap_or(path).display().to_string(),
        Location::Postgres { url } | Location::Server(url) => url,
    };
    steward.home = home::home(&place);
    steward.fastest = wanted.poll;
    steward.slowest = wanted.slowest_poll;
    steward.slurm.budget.per_minute = wanted.calls_per_minute;
    if let Some(directory) = options.run_dir.as_ref().filter(|_| !options.no_auth) {
        // Only who runs the server can read it, and that is who the workers are. Where it is may be known.
        let file = directory.join(TOKEN_FILE).display().to_string();
        steward.slurm.environment.push(("WINDLASS_TOKEN_FILE".to_owned(), file));
    }
    let parts = Parts { books: Arc::clone(database), service: service.clone() };
    Steward::open(parts, nudge, steward).map(Some)
}

/// What accounting has of a workflow. Blocks.
pub(crate) fn accounts(state: &AppState, workflow: WorkflowId) -> Answer<Vec<SlurmAccount>> {
    let found = accounts::of_workflow(way(state)?, &*state.store, workflow);
    found.map_err(|why| {
        let hint = why.hint();
        let error = match why {
            NoAccounts::Books(error) => return error.into(),
            NoAccounts::Unknown(why) => return unknown(&why),
            NoAccounts::Disabled => ApiError::conflict("no_accounting", why.to_string()),
            NoAccounts::Refused(_) => ApiError::new(StatusCode::BAD_GATEWAY, "slurm_failed", why.to_string()),
        };
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
}

/// What the cluster of this server has. Blocks.
pub(crate) fn cluster(state: &AppState) -> Answer<Profile> {
    discover::discover(way(state)?).map_err(undiscovered)
}

/// When such an allocation would start. Blocks.
pub(crate) fn would_start(state: &AppState, request: &AllocationRequest) -> Answer<String> {
    Ok(discover::would_start(way(state)?, request).map_err(undiscovered)?.to_string())
}

fn way(state: &AppState) -> Answer<&Slurm> {
    let steward = state.steward.as_ref().ok_or_else(|| {
        ApiError::conflict("no_slurm", "this server asks nothing of Slurm")
            .with_hint("where Slurm is, `windlass serve --slurm` starts one that does")
    })?;
    steward.for_people().map_err(|why| unknown(&why))
}

/// Nothing follows from no answer, except that one may ask again.
fn unknown(why: &Unknown) -> ApiError {
    let wait = match why {
        Unknown::Later { until } => until.since(Clock.now()),
        _ => Duration::from_mins(1),
    };
    ApiError::unavailable(why.to_string(), wait)
}

fn undiscovered(why: DiscoverError) -> ApiError {
    match why {
        DiscoverError::Unanswered(why) => unknown(&why),
        DiscoverError::Unfit { .. } => ApiError::invalid(why.to_string()),
        _ => ApiError::new(StatusCode::BAD_GATEWAY, "slurm_failed", why.to_string()),
    }
}
