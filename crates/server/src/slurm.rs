//! The steward of allocations, as this server runs it, and what people ask Slurm through it.

use crate::discovery;
use crate::error::{Answer, ApiError};
use crate::gate::allocation_scopes;
use crate::options::ServeOptions;
use crate::state::AppState;
use axum::http::StatusCode;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_api::slurm::SlurmAccount;
use windlass_auth::{Gate, Role, Secret, SecretHash};
use windlass_core::slurm::home;
use windlass_core::slurm::profile::Profile;
use windlass_engine::service::Service;
use windlass_slurm::accounts::{self, NoAccounts};
use windlass_slurm::calls::{Slurm, Unknown};
use windlass_slurm::discover::{self, DiscoverError};
use windlass_slurm::steward::{Credentials, Nudge, Parts, Steward, StewardOptions};
use windlass_store::model::{NewToken, WorkflowRow};
use windlass_store::{Database, Location, Store};
use windlass_types::fleet::JobsOf;
use windlass_types::slurm::AllocationRequest;
use windlass_types::{AllocationId, Clock, WorkflowId};

/// Takes up all allocations that are open, if this server looks after some. `url` is where workers find it unless something
/// else was said.
pub(crate) fn open(
    options: &ServeOptions,
    database: &Arc<dyn Database>,
    service: &Service,
    auth: &Arc<Gate>,
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
        let (store, auth) = (Arc::clone(database) as Arc<dyn Store>, Arc::clone(auth));
        let directory = directory.join(TOKENS);
        steward.credentials = Some(Arc::new(AllocationTokens { directory, store, auth }));
    }
    steward.users = match &wanted.jobs_of {
        JobsOf::Own => Some(vec![options.owner.clone()]),
        JobsOf::Users(users) => Some(users.iter().chain([&options.owner]).cloned().collect()),
        JobsOf::All => None,
    };
    let parts = Parts { books: Arc::clone(database), service: service.clone() };
    Steward::open(parts, nudge, steward).map(Some)
}

/// The directory, in that of the server, with a file per allocation that may be there.
const TOKENS: &str = "allocations";

/// One token per allocation, in a file that only the account of the server, with which the workers run, can read. It introduces
/// workers of that allocation and nothing else, and is revoked with the end of the allocation.
struct AllocationTokens {
    directory: PathBuf,
    store: Arc<dyn Store>,
    auth: Arc<Gate>,
}

impl fmt::Debug for AllocationTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationTokens").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Credentials for AllocationTokens {
    fn issue(&self, allocation: AllocationId, workflow: &WorkflowRow) -> io::Result<PathBuf> {
        let name = allocation.to_string();
        let path = self.directory.join(&name);
        // It was asked for before, and may be there by now.
        if self.known(&path)?.is_some() {
            return Ok(path);
        }
        let secret = Secret::random().map_err(io::Error::other)?;
        let token = NewToken {
            hash: secret.hash().to_string(),
            name: format!("allocation {allocation}"),
            user: workflow.user.clone(),
            role: Role::User.to_string(),
            scopes: allocation_scopes(allocation, workflow.id),
            expires_at: None,
        };
        // The file first: a token that no file holds would never be revoked.
        discovery::keep_private(&self.directory, &name, secret.reveal()).map_err(io::Error::other)?;
        self.store.add_token(&token, Clock.now()).map_err(io::Error::other)?;
        Ok(path)
    }

    fn keep_only(&self, open: &BTreeSet<AllocationId>) {
        let files = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for file in files {
            let name = file.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok()).map(AllocationId);
            if id.is_none_or(|id| open.contains(&id)) {
                continue;
            }
            if let Err(error) = self.end(&file.path()) {
                tracing::warn!(path = %file.path().display(), %error, "the token of an allocation that is over is not revoked yet");
            }
        }
    }
}

impl AllocationTokens {
    /// The id of the token in a file, if there is one that is accepted.
    fn known(&self, path: &Path) -> io::Result<Option<i64>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let row =
            self.store.token_by_hash(&SecretHash::of(text.trim()).to_string()).map_err(io::Error::other)?;
        Ok(row.filter(|row| row.revoked_at.is_none()).map(|row| row.id))
    }

    fn end(&self, path: &Path) -> io::Result<()> {
        if let Some(id) = self.known(path)? {
            self.store.revoke_token(id, Clock.now()).map_err(io::Error::other)?;
            self.auth.revoke_token(id);
        }
        std::fs::remove_file(path)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Books;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;
    use windlass_auth::{Binding, Denied, GateOptions, Scopes, Shown};
    use windlass_store::model::{Listed, NewWorkflow};
    use windlass_store::sqlite::SqliteStore;

    #[test]
    fn the_token_of_an_allocation_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let opened = SqliteStore::open_or_create(dir.path().join("books.db")).unwrap();
        let store: Arc<dyn Store> = Arc::new(opened.store);
        let new = NewWorkflow { name: "w", user: "ana", submission_dir: "/", ..NewWorkflow::default() };
        let id = store.create_workflow(&new, &mut Listed::new([]), Clock.now()).unwrap();
        let workflow = store.workflow(id).unwrap().unwrap();
        let tokens = Some(Arc::new(Books(Arc::clone(&store))) as Arc<dyn windlass_auth::TokenBook>);
        let auth = Arc::new(Gate::open(GateOptions { tokens, ..GateOptions::default() }).unwrap());
        let directory = dir.path().join("run/allocations");
        let credentials = AllocationTokens { directory, store: Arc::clone(&store), auth: Arc::clone(&auth) };

        let path = credentials.issue(AllocationId(7), &workflow).unwrap();
        assert_eq!(credentials.issue(AllocationId(7), &workflow).unwrap(), path, "asked for again");
        assert_eq!(store.tokens(Some("ana")).unwrap().len(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let header = format!("Bearer {}", std::fs::read_to_string(&path).unwrap());
        let shown = || Shown {
            authorization: Some(&header),
            certificate: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: Clock.now(),
            clock: Instant::now(),
        };
        let worker = auth.admit(&shown()).unwrap();
        assert_eq!((&*worker.user, worker.role, worker.scopes), ("ana", Role::User, Scopes::ALLOCATION));
        assert_eq!(worker.bound, Some(Binding::Allocation { allocation: AllocationId(7), workflow: id }));

        credentials.keep_only(&BTreeSet::from([AllocationId(7)]));
        assert!(path.exists() && auth.admit(&shown()).is_ok());
        credentials.keep_only(&BTreeSet::new());
        assert!(!path.exists());
        assert_eq!(auth.admit(&shown()), Err(Denied::Token));
    }
}
