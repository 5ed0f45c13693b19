//! The steward of allocations, as this server runs it.

use crate::discovery::TOKEN_FILE;
use crate::options::ServeOptions;
use std::io;
use std::sync::Arc;
use windlass_engine::service::Service;
use windlass_slurm::steward::{Nudge, Parts, Steward, StewardOptions};
use windlass_store::Database;

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
