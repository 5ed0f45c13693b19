//! Where the gate ([`windlass_auth::Gate`]) gets its tokens and keys from, and where it notes that they were used.

use crate::state::AppState;
use std::io::Read as _;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use windlass_api::job_token::{JobClaim, JobWork};
use windlass_auth::{
    Binding, BookError, Fetch, FetchError, JobHolder, Role, Scopes, SecretHash, TokenBook, TokenRecord,
};
use windlass_store::Store;
use windlass_store::model::TokenRow;
use windlass_types::{AllocationId, WorkflowId};

/// A key set is small; whoever sends more is not an issuer.
const LARGEST_DOCUMENT: u64 = 1 << 20;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// When tokens were last used need not be known to the second.
const NOTE_USE_EVERY: Duration = Duration::from_mins(1);

/// Tokens, from the books.
pub(crate) struct Books(pub(crate) Arc<dyn Store>);

impl TokenBook for Books {
    fn find(&self, hash: SecretHash) -> Result<Option<TokenRecord>, BookError> {
        let row = self.0.token_by_hash(&hash.to_string()).map_err(|error| BookError(error.to_string()))?;
        Ok(row.filter(|row| row.revoked_at.is_none()).and_then(record))
    }

    fn holder(&self, claim: &JobClaim) -> Result<Option<JobHolder>, BookError> {
        holder(&*self.0, claim).map_err(|error| BookError(error.to_string()))
    }
}

/// The worker that a job's token names, if this worker runs the job now.
fn holder(store: &dyn Store, claim: &JobClaim) -> Result<Option<JobHolder>, windlass_store::Error> {
    let Some(worker) = store.worker(claim.worker)?.filter(windlass_store::model::WorkerRow::is_active) else {
        return Ok(None);
    };
    let Some(secret_hash) = worker.worker.secret_hash else { return Ok(None) };
    let workflow = match &claim.work {
        JobWork::Job(key) => {
            let held = store.held_job(key.workflow, key.job)?;
            let is_held = held.is_some_and(|job| job.worker == claim.worker && job.attempt == key.attempt);
            let row = if is_held { store.workflow(key.workflow)? } else { None };
            row.filter(|row| row.run_id == key.run)
        }
        JobWork::Action { workflow, action, attempt } => {
            let actions = store.actions(*workflow)?;
            let runs = actions.iter().filter(|row| row.id == *action).flat_map(|row| &row.runs);
            let mut running = runs.filter(|run| run.attempt == *attempt && run.ended_at.is_none());
            let is_held = running.any(|run| run.worker_id == Some(claim.worker));
            if is_held { store.workflow(*workflow)? } else { None }
        }
    };
    Ok(workflow.map(|row| JobHolder { secret_hash, user: row.user.into() }))
}

/// How the binding of a token to an allocation stands among its scopes: `allocation:17:3`, the allocation and its workflow.
const ALLOCATION: &str = "allocation:";

/// The scopes of the token of an allocation's workers, as they are kept.
pub(crate) fn allocation_scopes(allocation: AllocationId, workflow: WorkflowId) -> Vec<String> {
    vec![format!("{ALLOCATION}{allocation}:{workflow}")]
}

/// What a token is good for, by the words that are kept of it.
fn scopes(words: &[String]) -> Option<(Scopes, Option<Binding>)> {
    let [word] = words else { return Some((Scopes::words(words.iter().map(String::as_str)).ok()?, None)) };
    let Some(said) = word.strip_prefix(ALLOCATION) else { return Some((Scopes::word(word).ok()?, None)) };
    let (allocation, workflow) = said.split_once(':')?;
    let (allocation, workflow) = (AllocationId(allocation.parse().ok()?), WorkflowId(workflow.parse().ok()?));
    Some((Scopes::ALLOCATION, Some(Binding::Allocation { allocation, workflow })))
}

/// A row that makes no sense, of a newer version perhaps, lets nobody in.
fn record(row: TokenRow) -> Option<TokenRecord> {
    let (scopes, bound) = scopes(&row.scopes)?;
    Some(TokenRecord {
        id: row.id,
        role: Role::from_str(&row.role).ok()?,
        scopes,
        bound,
        name: row.name.into(),
        user: row.user.into(),
        expires: row.expires_at,
    })
}

/// Documents of issuers, over the network. Used where it may block.
pub(crate) struct Network;

impl Fetch for Network {
    fn fetch(&self, url: &str) -> Result<String, FetchError> {
        get(url).inspect_err(|error| tracing::warn!(%url, %error, "the keys of an issuer cannot be had"))
    }
}

fn get(url: &str) -> Result<String, FetchError> {
    let wrong = |error: reqwest::Error| FetchError(error.without_url().to_string());
    let client = reqwest::blocking::Client::builder()
        .timeout(FETCH_TIMEOUT)
        // An issuer says where its keys are; somebody on the way does not.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(wrong)?;
    let answer =
        client.get(url).send().and_then(reqwest::blocking::Response::error_for_status).map_err(wrong)?;
    let mut text = String::new();
    let read = answer.take(LARGEST_DOCUMENT + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 <= LARGEST_DOCUMENT => Ok(text),
        Ok(_) => Err(FetchError("it is too large".to_owned())),
        Err(error) => Err(FetchError(error.to_string())),
    }
}

/// Notes now and then which tokens were used, and once more when the server stops.
pub(crate) async fn note_token_use(state: AppState, stop: CancellationToken) {
    loop {
        let is_over = tokio::time::timeout(NOTE_USE_EVERY, stop.cancelled()).await.is_ok();
        let used = state.auth.take_used_tokens();
        let note =
            move |store: &dyn Store| used.iter().try_for_each(|(id, when)| store.note_token_use(*id, *when));
        if let Err(error) = state.books(note).await {
            tracing::warn!(%error, "when tokens were used could not be noted");
        }
        if is_over {
            return;
        }
    }
}
