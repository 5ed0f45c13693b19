//! Runs the allocation reconciler in this server, and forwards queries to Slurm.

use crate::auth_backend::allocation_scopes;
use crate::discovery;
use crate::error::{ApiError, ApiResult};
use crate::options::ServeOptions;
use crate::state::AppState;
use axum::http::StatusCode;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use windlass_api::slurm::SlurmAccountingEntry;
use windlass_auth::{Authenticator, SecretHash, TokenSecret, UserRole};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_core::slurm::database_id;
use windlass_scheduler::service::SchedulerHandle;
use windlass_slurm::allocation_reconciler::{
    AllocationReconciler, AllocationReconcilerDependencies, AllocationReconcilerOptions,
    AllocationReconcilerWaker, CredentialIssuer,
};
use windlass_slurm::cluster_discovery::{self, ClusterDiscoveryError};
use windlass_slurm::slurm_client::{SlurmClient, SlurmUnavailable};
use windlass_slurm::workflow_accounting::{self, AccountingError};
use windlass_store::model::{NewTokenRow, WorkflowRow};
use windlass_store::{Store, StoreDatabase, StoreLocation};
use windlass_types::slurm::AllocationRequest;
use windlass_types::worker_protocol::AcceptedJobOwners;
use windlass_types::{AllocationId, SystemClock, WorkflowId};

/// Starts managing all open allocations, if configured. `url` is the address for workers unless another one is
/// configured.
pub(crate) fn open_allocation_reconciler(
    options: &ServeOptions,
    database: &Arc<dyn StoreDatabase>,
    service: &SchedulerHandle,
    auth: &Arc<Authenticator>,
    waker: AllocationReconcilerWaker,
    url: &str,
) -> io::Result<Option<AllocationReconciler>> {
    let Some(wanted) = &options.slurm else { return Ok(None) };
    let windlass = match &wanted.worker_program {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let server = wanted.worker_url.as_deref().unwrap_or(url);
    let mut reconciler = AllocationReconcilerOptions::new(server, windlass);
    // Resolve symbolic links, so that one directory has one path.
    let place = match database.location() {
        StoreLocation::Sqlite(path) => std::fs::canonicalize(&path).unwrap_or(path).display().to_string(),
        StoreLocation::Postgres { url } | StoreLocation::Server(url) => url,
    };
    reconciler.tag_prefix = database_id::database_id(&place);
    reconciler.active_interval = wanted.min_poll_interval;
    reconciler.idle_interval = wanted.max_poll_interval;
    reconciler.slurm.budget.per_minute = wanted.calls_per_minute;
    if let Some(directory) = options.run_dir.as_ref().filter(|_| !options.no_auth) {
        let (store, auth) = (Arc::clone(database) as Arc<dyn Store>, Arc::clone(auth));
        let directory = directory.join(TOKEN_DIRECTORY);
        reconciler.credentials = Some(Arc::new(AllocationTokens { directory, store, auth }));
    }
    reconciler.users = match &wanted.jobs_of {
        AcceptedJobOwners::Own => Some(vec![options.owner.clone()]),
        AcceptedJobOwners::Users(users) => Some(users.iter().chain([&options.owner]).cloned().collect()),
        AcceptedJobOwners::All => None,
    };
    let parts =
        AllocationReconcilerDependencies { database: Arc::clone(database), scheduler: service.clone() };
    AllocationReconciler::open(parts, waker, reconciler).map(Some)
}

/// Directory with one token file per open allocation, in the server's directory.
const TOKEN_DIRECTORY: &str = "allocations";

/// Creates one token per allocation, in a file readable only by the server's account, with which the workers
/// run. The token registers workers of that allocation and nothing else, and is revoked when the allocation
/// ends.
struct AllocationTokens {
    directory: PathBuf,
    store: Arc<dyn Store>,
    auth: Arc<Authenticator>,
}

impl fmt::Debug for AllocationTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationTokens").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl CredentialIssuer for AllocationTokens {
    fn issue_credential(&self, allocation: AllocationId, workflow: &WorkflowRow) -> io::Result<PathBuf> {
        let name = allocation.to_string();
        let path = self.directory.join(&name);
        // Created by an earlier submission attempt.
        if self.find_valid_token(&path)?.is_some() {
            return Ok(path);
        }
        let secret = TokenSecret::random().map_err(io::Error::other)?;
        let token = NewTokenRow {
            hash: secret.hash().to_string(),
            name: format!("allocation {allocation}"),
            user: workflow.user.clone(),
            role: UserRole::User.to_string(),
            scopes: allocation_scopes(allocation, workflow.id),
            expires_at: None,
        };
        // Write the file first: a token without a file would never be revoked.
        discovery::store_private_file(&self.directory, &name, secret.reveal()).map_err(io::Error::other)?;
        self.store.add_token(&token, SystemClock.now()).map_err(io::Error::other)?;
        Ok(path)
    }

    fn revoke_others(&self, open: &BTreeSet<AllocationId>) {
        let files = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        for file in files {
            let name = file.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok()).map(AllocationId);
            if id.is_none_or(|id| open.contains(&id)) {
                continue;
            }
            if let Err(error) = self.revoke_token_file(&file.path()) {
                tracing::warn!(path = %file.path().display(), %error, "cannot revoke the token of an ended allocation yet");
            }
        }
    }
}

impl AllocationTokens {
    /// Returns the id of the token in a file, if it is still valid.
    fn find_valid_token(&self, path: &Path) -> io::Result<Option<i64>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let row = self
            .store
            .token_by_hash(&SecretHash::from_secret(text.trim()).to_string())
            .map_err(io::Error::other)?;
        Ok(row.filter(|row| row.revoked_at.is_none()).map(|row| row.id))
    }

    fn revoke_token_file(&self, path: &Path) -> io::Result<()> {
        if let Some(id) = self.find_valid_token(path)? {
            self.store.revoke_token(id, SystemClock.now()).map_err(io::Error::other)?;
            self.auth.revoke_token(id);
        }
        std::fs::remove_file(path)
    }
}

/// Returns the accounting data of a workflow. Blocks.
pub(crate) fn load_slurm_accounting(
    state: &AppState,
    workflow: WorkflowId,
) -> ApiResult<Vec<SlurmAccountingEntry>> {
    let found = workflow_accounting::load_workflow_accounting(slurm_client(state)?, &*state.store, workflow);
    found.map_err(|why| {
        let hint = why.render_hint();
        let error = match why {
            AccountingError::Store(error) => return error.into(),
            AccountingError::Unknown(why) => return unknown_state_error(&why),
            AccountingError::Disabled => ApiError::conflict("no_accounting", why.to_string()),
            AccountingError::Refused(_) => {
                ApiError::new(StatusCode::BAD_GATEWAY, "slurm_failed", why.to_string())
            }
        };
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
}

/// Returns the resources of the server's cluster. Blocks.
pub(crate) fn load_cluster_profile(state: &AppState) -> ApiResult<ClusterProfile> {
    cluster_discovery::discover_cluster(slurm_client(state)?).map_err(discovery_error)
}

/// Estimates when such an allocation would start. Blocks.
pub(crate) fn estimate_start(state: &AppState, request: &AllocationRequest) -> ApiResult<String> {
    Ok(cluster_discovery::estimate_start(slurm_client(state)?, request).map_err(discovery_error)?.to_string())
}

fn slurm_client(state: &AppState) -> ApiResult<&SlurmClient> {
    let reconciler = state.allocation_reconciler.as_ref().ok_or_else(|| {
        ApiError::conflict("no_slurm", "this server does not use Slurm")
            .with_hint("start a server with `windlass serve --slurm` where Slurm is available")
    })?;
    reconciler.client_for_users().map_err(|why| unknown_state_error(&why))
}

/// A call without an answer may be retried; nothing follows from it.
fn unknown_state_error(why: &SlurmUnavailable) -> ApiError {
    let wait = match why {
        SlurmUnavailable::OutOfBudget { until } => until.since(SystemClock.now()),
        _ => Duration::from_mins(1),
    };
    ApiError::unavailable(why.to_string(), wait)
}

fn discovery_error(why: ClusterDiscoveryError) -> ApiError {
    match why {
        ClusterDiscoveryError::Unanswered(why) => unknown_state_error(&why),
        ClusterDiscoveryError::InvalidRequest { .. } => ApiError::invalid(why.to_string()),
        _ => ApiError::new(StatusCode::BAD_GATEWAY, "slurm_failed", why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth_backend::SqlTokenStore;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;
    use windlass_auth::{
        AuthenticationError, AuthenticatorOptions, CredentialBinding, PresentedCredentials, TokenScopes,
    };
    use windlass_store::model::{InMemoryJobSource, NewWorkflow};
    use windlass_store::sqlite::SqliteStore;

    #[test]
    fn allocation_token_expires_with_the_allocation() {
        let dir = tempfile::tempdir().unwrap();
        let opened = SqliteStore::open_or_create(dir.path().join("store.db")).unwrap();
        let store: Arc<dyn Store> = Arc::new(opened.store);
        let new = NewWorkflow { name: "w", user: "ana", submission_dir: "/", ..NewWorkflow::default() };
        let id = store.create_workflow(&new, &mut InMemoryJobSource::new([]), SystemClock.now()).unwrap();
        let workflow = store.workflow(id).unwrap().unwrap();
        let tokens = Some(Arc::new(SqlTokenStore(Arc::clone(&store))) as Arc<dyn windlass_auth::TokenStore>);
        let auth = Arc::new(
            Authenticator::open(AuthenticatorOptions { tokens, ..AuthenticatorOptions::default() }).unwrap(),
        );
        let directory = dir.path().join("run/allocations");
        let credentials = AllocationTokens { directory, store: Arc::clone(&store), auth: Arc::clone(&auth) };

        let path = credentials.issue_credential(AllocationId(7), &workflow).unwrap();
        assert_eq!(
            credentials.issue_credential(AllocationId(7), &workflow).unwrap(),
            path,
            "submitted again"
        );
        assert_eq!(store.tokens(Some("ana")).unwrap().len(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let header = format!("Bearer {}", std::fs::read_to_string(&path).unwrap());
        let shown = || PresentedCredentials {
            authorization: Some(&header),
            certificate: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: SystemClock.now(),
            clock: Instant::now(),
        };
        let worker = auth.authenticate(&shown()).unwrap();
        assert_eq!(
            (&*worker.user, worker.role, worker.scopes),
            ("ana", UserRole::User, TokenScopes::ALLOCATION)
        );
        assert_eq!(
            worker.binding,
            Some(CredentialBinding::Allocation { allocation: AllocationId(7), workflow: id })
        );

        credentials.revoke_others(&BTreeSet::from([AllocationId(7)]));
        assert!(path.exists() && auth.authenticate(&shown()).is_ok());
        credentials.revoke_others(&BTreeSet::new());
        assert!(!path.exists());
        assert_eq!(auth.authenticate(&shown()), Err(AuthenticationError::Token));
    }
}
