//! Tokens and signing keys for authentication ([`windlass_auth::Authenticator`]), and the record of when tokens
//! were used.

use crate::state::AppState;
use std::io::Read as _;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use windlass_api::job_token::{JobTokenClaims, JobTokenSubject};
use windlass_auth::{
    CredentialBinding, DocumentFetchError, DocumentFetcher, JobHolder, SecretHash, TokenRecord, TokenScopes,
    TokenStore, TokenStoreError, UserRole,
};
use windlass_store::Store;
use windlass_store::model::TokenRow;
use windlass_types::{AllocationId, WorkflowId};

/// Maximum size of a key set; a larger document is not a key set.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Last-used times of tokens are written this often; they need no higher precision.
const TOKEN_USE_INTERVAL: Duration = Duration::from_mins(1);

/// The token store in the database.
pub(crate) struct SqlTokenStore(pub(crate) Arc<dyn Store>);

impl TokenStore for SqlTokenStore {
    fn find_token(&self, hash: SecretHash) -> Result<Option<TokenRecord>, TokenStoreError> {
        let row =
            self.0.token_by_hash(&hash.to_string()).map_err(|error| TokenStoreError(error.to_string()))?;
        Ok(row.filter(|row| row.revoked_at.is_none()).and_then(token_record))
    }

    fn find_job_holder(&self, claim: &JobTokenClaims) -> Result<Option<JobHolder>, TokenStoreError> {
        find_job_holder(&*self.0, claim).map_err(|error| TokenStoreError(error.to_string()))
    }
}

/// Returns the worker named in a job token, if that worker runs the job now.
fn find_job_holder(
    store: &dyn Store,
    claim: &JobTokenClaims,
) -> Result<Option<JobHolder>, windlass_store::StoreError> {
    let Some(worker) = store.worker(claim.worker)?.filter(windlass_store::model::WorkerRow::is_active) else {
        return Ok(None);
    };
    let Some(secret_hash) = worker.worker.secret_hash else { return Ok(None) };
    let workflow = match &claim.work {
        JobTokenSubject::Job(key) => {
            let held = store.held_job(key.workflow, key.job)?;
            let is_held = held.is_some_and(|job| job.worker == claim.worker && job.attempt == key.attempt);
            let row = if is_held { store.workflow(key.workflow)? } else { None };
            row.filter(|row| row.run_id == key.run)
        }
        JobTokenSubject::Action { workflow, action, attempt } => {
            let actions = store.actions(*workflow)?;
            let runs = actions.iter().filter(|row| row.id == *action).flat_map(|row| &row.runs);
            let mut running = runs.filter(|run| run.attempt == *attempt && run.ended_at.is_none());
            let is_held = running.any(|run| run.worker_id == Some(claim.worker));
            if is_held { store.workflow(*workflow)? } else { None }
        }
    };
    Ok(workflow.map(|row| JobHolder { secret_hash, user: row.user.into() }))
}

/// Scope entry that binds a token to an allocation: `allocation:17:3`, the allocation and its workflow.
const ALLOCATION_SCOPE_PREFIX: &str = "allocation:";

/// Returns the stored scopes of the token of an allocation's workers.
pub(crate) fn allocation_scopes(allocation: AllocationId, workflow: WorkflowId) -> Vec<String> {
    vec![format!("{ALLOCATION_SCOPE_PREFIX}{allocation}:{workflow}")]
}

/// Parses the stored scopes of a token.
fn parse_scopes(words: &[String]) -> Option<(TokenScopes, Option<CredentialBinding>)> {
    let [word] = words else {
        return Some((TokenScopes::parse_names(words.iter().map(String::as_str)).ok()?, None));
    };
    let Some(said) = word.strip_prefix(ALLOCATION_SCOPE_PREFIX) else {
        return Some((TokenScopes::parse_name(word).ok()?, None));
    };
    let (allocation, workflow) = said.split_once(':')?;
    let (allocation, workflow) = (AllocationId(allocation.parse().ok()?), WorkflowId(workflow.parse().ok()?));
    Some((TokenScopes::ALLOCATION, Some(CredentialBinding::Allocation { allocation, workflow })))
}

/// Converts a token row. An unreadable row, perhaps of a newer version, authenticates no caller.
fn token_record(row: TokenRow) -> Option<TokenRecord> {
    let (scopes, bound) = parse_scopes(&row.scopes)?;
    Some(TokenRecord {
        id: row.id,
        role: UserRole::from_str(&row.role).ok()?,
        scopes,
        binding: bound,
        name: row.name.into(),
        user: row.user.into(),
        expires: row.expires_at,
    })
}

/// Fetches documents of token issuers over the network. Blocks.
pub(crate) struct HttpFetcher;

impl DocumentFetcher for HttpFetcher {
    fn fetch(&self, url: &str) -> Result<String, DocumentFetchError> {
        fetch_document(url)
            .inspect_err(|error| tracing::warn!(%url, %error, "cannot fetch the keys of an issuer"))
    }
}

fn fetch_document(url: &str) -> Result<String, DocumentFetchError> {
    let wrong = |error: reqwest::Error| DocumentFetchError(error.without_url().to_string());
    let client = reqwest::blocking::Client::builder()
        .timeout(FETCH_TIMEOUT)
        // Redirects are not followed: the issuer itself names the location of its keys.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(wrong)?;
    let answer =
        client.get(url).send().and_then(reqwest::blocking::Response::error_for_status).map_err(wrong)?;
    let mut text = String::new();
    let read = answer.take(MAX_DOCUMENT_BYTES + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 <= MAX_DOCUMENT_BYTES => Ok(text),
        Ok(_) => Err(DocumentFetchError("the document is too large".to_owned())),
        Err(error) => Err(DocumentFetchError(error.to_string())),
    }
}

/// Writes the last-used times of tokens periodically, and once more at shutdown.
pub(crate) async fn record_token_use(state: AppState, stop: CancellationToken) {
    loop {
        let is_over = tokio::time::timeout(TOKEN_USE_INTERVAL, stop.cancelled()).await.is_ok();
        let used = state.authenticator.take_used_tokens();
        let note = move |store: &dyn Store| {
            used.iter().try_for_each(|(id, when)| store.record_token_use(*id, *when))
        };
        if let Err(error) = state.with_store(note).await {
            tracing::warn!(%error, "cannot write when tokens were last used");
        }
        if is_over {
            return;
        }
    }
}
