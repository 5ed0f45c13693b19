//! The authenticated caller of a request, and permission checks.

use crate::connections::ClientConnection;
use crate::error::{ApiError, ApiResult};
use crate::routes::events::EventVisibility;
use crate::state::{AppState, run_blocking};
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use windlass_auth::{
    AccessDecision, AuthOperation, AuthenticationError, CredentialBinding, ObjectRelation, PeerCertificate,
    PresentedCredentials, Principal, decide_access, suggest_remedy,
};
use windlass_scheduler::service::{WorkerOwner, WorkflowPredicate};
use windlass_store::Store;
use windlass_store::model::{WorkerRow, WorkflowRow};
use windlass_types::worker_protocol::{AcceptedJobOwners, WorkerRegistration};
use windlass_types::{AllocationId, Timestamp, WorkerId, WorkflowId};

/// The client of a connection, in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct ConnectionPeer {
    pub address: SocketAddr,
    /// The client certificate, already verified against the client CA.
    pub certificate: Option<Arc<PeerCertificate>>,
    pub(crate) connection: Option<Arc<ClientConnection>>,
}

/// An authenticated caller. Handlers with this extractor reject unauthenticated requests.
#[derive(Clone, Debug)]
pub struct Caller(pub Principal);

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }
        RequestCredential::from_parts(parts).authenticate(state).await.map(Self).map_err(ApiError::from)
    }
}

/// The credentials of a request. Long-lived responses keep them and check again: they may expire.
#[derive(Clone)]
pub(crate) struct RequestCredential {
    peer: Option<ConnectionPeer>,
    authorization: Option<String>,
}

impl RequestCredential {
    pub(crate) fn from_parts(parts: &Parts) -> Self {
        let peer = parts.extensions.get::<ConnectionPeer>().cloned();
        // A header that is not text counts as an invalid credential, not as a missing one.
        let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
        let authorization = headers.next().map(|header| header.to_str().unwrap_or_default().to_owned());
        // Reject two Authorization headers: a proxy in front of the server may have checked the other one.
        let authorization = authorization.map(|header| headers.next().map_or(header, |_| String::new()));
        Self { peer, authorization }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.peer.as_ref().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address.ip())
    }

    /// Counts the connection towards this user's connections.
    pub(crate) fn assign_connection(&self, user: &Arc<str>) -> ApiResult<()> {
        let connection = self.peer.as_ref().and_then(|peer| peer.connection.as_ref());
        connection.map_or(Ok(()), |connection| connection.assign_user(user))
    }

    fn presented(&self, now: Timestamp) -> PresentedCredentials<'_> {
        PresentedCredentials {
            authorization: self.authorization.as_deref(),
            certificate: self.peer.as_ref().and_then(|peer| peer.certificate.as_deref()),
            address: self.address(),
            now,
            clock: Instant::now(),
        }
    }

    /// Returns the principal if it is known without a slow check; `None` if unknown or invalid.
    pub(crate) fn cached_principal(&self, state: &AppState) -> Option<Principal> {
        state.authenticator.try_authenticate(&self.presented(state.now())).and_then(Result::ok)
    }

    /// Returns the worker whose job makes the request, as far as known without the database.
    pub(crate) fn job_signer(&self, state: &AppState) -> Option<WorkerId> {
        state.authenticator.find_job_signer(&self.presented(state.now()))
    }

    pub(crate) async fn authenticate(&self, state: &AppState) -> Result<Principal, AuthenticationError> {
        if let Some(known) = state.authenticator.try_authenticate(&self.presented(state.now())) {
            return known;
        }
        // Checking a password hash or fetching keys is slow.
        let (this, authenticator, now) = (self.clone(), Arc::clone(&state.authenticator), state.now());
        let slowly = run_blocking(move || authenticator.authenticate(&this.presented(now))).await;
        slowly.unwrap_or(Err(AuthenticationError::Unavailable))
    }
}

impl From<AuthenticationError> for ApiError {
    fn from(denied: AuthenticationError) -> Self {
        let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::UNAUTHORIZED);
        let error = Self::new(status, denied.code(), denied.to_string()).with_hint(denied.hint());
        match denied.retry_after() {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        }
    }
}

impl Caller {
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// Checks whether the caller may perform `operation` on `what`, given the caller's relation to it.
    pub fn authorize(
        &self,
        operation: AuthOperation,
        relation: ObjectRelation,
        what: impl fmt::Display,
    ) -> ApiResult<()> {
        let access_decision = decide_access(operation, self.0.role, self.0.scopes, relation);
        let refused = match access_decision {
            AccessDecision::Allow => return Ok(()),
            AccessDecision::Hide => return Err(ApiError::not_found(what)),
            AccessDecision::ForbidScope => {
                ApiError::forbidden("the scopes of the token do not permit this operation")
            }
            AccessDecision::ForbidRole => {
                ApiError::forbidden(format!("role {} does not permit this operation", self.0.role))
            }
        };
        Err(match suggest_remedy(operation, access_decision, relation) {
            Some(remedy) => refused.with_hint(remedy),
            None => refused,
        })
    }

    /// Returns the caller's relation to a workflow.
    fn workflow_relation(
        &self,
        store: &dyn Store,
        workflow: &WorkflowRow,
    ) -> Result<ObjectRelation, windlass_store::StoreError> {
        if !self.0.covers_workflow(workflow.id) {
            return Ok(ObjectRelation::Other);
        }
        if workflow.user == *self.0.user {
            return Ok(ObjectRelation::Own);
        }
        let is_shared = store.is_shared_with(workflow.id, &self.0.user)?;
        Ok(if is_shared { ObjectRelation::Shared } else { ObjectRelation::Other })
    }

    /// Returns the workflow if the caller may perform `operation` on it.
    pub async fn authorize_workflow(
        &self,
        state: &AppState,
        operation: AuthOperation,
        id: WorkflowId,
    ) -> ApiResult<WorkflowRow> {
        let what = format!("workflow {id}");
        // Report a missing scope or role before reading the database.
        self.authorize(operation, ObjectRelation::Own, &what)?;
        let caller = self.clone();
        let found = state.with_store(move |store| caller.find_workflow(store, id)).await?;
        let (row, relation) = found.ok_or_else(|| ApiError::not_found(&what))?;
        self.authorize(operation, relation, &what)?;
        Ok(row)
    }

    fn find_workflow(
        &self,
        store: &dyn Store,
        id: WorkflowId,
    ) -> Result<Option<(WorkflowRow, ObjectRelation)>, windlass_store::StoreError> {
        let Some(row) = store.workflow(id)? else { return Ok(None) };
        let relation = self.workflow_relation(store, &row)?;
        Ok(Some((row, relation)))
    }

    /// Returns whether the caller may see a workflow.
    pub(crate) fn can_read_workflow(&self, store: &dyn Store, id: WorkflowId) -> bool {
        self.can_perform(store, AuthOperation::ReadWorkflow, id)
    }

    /// Returns whether the caller may see the values of its secrets.
    pub(crate) fn can_read_secrets(&self, store: &dyn Store, id: WorkflowId) -> bool {
        self.can_perform(store, AuthOperation::ReadSecrets, id)
    }

    fn can_perform(&self, store: &dyn Store, operation: AuthOperation, id: WorkflowId) -> bool {
        let found = self.find_workflow(store, id).ok().flatten();
        found.is_some_and(|(_, relation)| self.authorize(operation, relation, "").is_ok())
    }

    /// Returns which events the caller may see.
    pub(crate) async fn event_visibility(
        &self,
        state: &AppState,
        workflow: Option<WorkflowId>,
    ) -> ApiResult<EventVisibility> {
        self.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "event")?;
        if let Some(id) = workflow {
            self.authorize_workflow(state, AuthOperation::ReadWorkflow, id).await?;
            // The subscription is limited to this workflow, and the permission is checked again periodically.
            return Ok(EventVisibility::All);
        }
        if self.0.sees_all() {
            return Ok(EventVisibility::All);
        }
        let (caller, store) = (self.clone(), Arc::clone(&state.store));
        Ok(EventVisibility::cached(state.options.permission_check_interval, move |id| {
            caller.can_read_workflow(&*store, id)
        }))
    }

    /// Decides whose jobs a worker may run: those of its user, and of the users in `--jobs-of` if its user may run
    /// their jobs. Other users' jobs run with the worker's account, so a worker gets only those it asked for, also
    /// if it is bound to one workflow.
    pub(crate) async fn authorize_registration(
        &self,
        state: &AppState,
        asks: &WorkerRegistration,
    ) -> ApiResult<WorkerOwner> {
        let only = asks.workflow;
        match &self.0.binding {
            Some(CredentialBinding::Allocation { allocation, workflow }) => {
                self.check_allocation_token(state, asks, *allocation, *workflow).await?;
            }
            Some(_) => return Err(ApiError::forbidden("a job token cannot register a worker")),
            None => {
                if let Some(id) = only {
                    let row = self.authorize_workflow(state, AuthOperation::RunJobs, id).await?;
                    if row.user != *self.0.user && !asks.jobs_of.includes(&row.user) {
                        let hint = format!(
                            "its jobs would run with the account of this worker; to trust them: --jobs-of {}",
                            row.user
                        );
                        let why = format!("workflow {id} belongs to {}", row.user);
                        return Err(ApiError::forbidden(why).with_hint(hint));
                    }
                }
            }
        }
        let is_operator = self.0.sees_all();
        if asks.jobs_of == AcceptedJobOwners::All && !is_operator {
            return Err(ApiError::forbidden(format!(
                "role {} may not run the jobs of all users",
                self.0.role
            ))
            .with_hint(
                "this requires the role operator; `--jobs-of USER` names users who share workflows with you",
            ));
        }
        let (who, store, jobs_of) = (self.clone(), Arc::clone(&state.store), asks.jobs_of.clone());
        let may: WorkflowPredicate = Arc::new(move |row| {
            if who.0.binding.is_some() {
                return who.0.covers_workflow(row.id);
            }
            // Sharing may end at any time.
            row.user == *who.0.user
                || (jobs_of.includes(&row.user) && who.can_perform(&*store, AuthOperation::RunJobs, row.id))
        });
        // A worker registered by an operator for other users' jobs needs an operator's credential.
        let sees_all = is_operator && asks.jobs_of != AcceptedJobOwners::Own;
        Ok(WorkerOwner { user: Arc::clone(&self.0.user), sees_all, may_work_for: may })
    }

    /// Checks that an allocation token is used only to register workers in the allocation and to deliver the
    /// undelivered results of earlier workers there.
    async fn check_allocation_token(
        &self,
        state: &AppState,
        asks: &WorkerRegistration,
        allocation: AllocationId,
        workflow: WorkflowId,
    ) -> ApiResult<()> {
        let is_here = asks.allocation == Some(allocation.0) && asks.workflow == Some(workflow);
        let is_continuation = match (&asks.before, asks.allocation, asks.workflow) {
            (Some(before), None, None) => {
                let before = before.worker;
                let row = state.with_store(move |store| store.worker(before)).await?;
                row.is_some_and(|row| row.worker.allocation == Some(allocation.0))
            }
            _ => false,
        };
        if (is_here && asks.slurm.is_some()) || is_continuation {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("this token is valid only for workers in allocation {allocation}")))
    }

    /// Returns the caller's relation to an object of this user.
    pub(crate) fn relation_to_user(&self, user: &str) -> ObjectRelation {
        if *user == *self.0.user { ObjectRelation::Own } else { ObjectRelation::Other }
    }

    /// Returns the worker if the caller may perform `operation` on it.
    pub(crate) async fn authorize_worker(
        &self,
        state: &AppState,
        operation: AuthOperation,
        id: WorkerId,
    ) -> ApiResult<WorkerRow> {
        let what = format!("worker {id}");
        self.authorize(operation, ObjectRelation::Own, &what)?;
        let row = state.with_store(move |store| store.worker(id)).await?;
        let row = row.ok_or_else(|| ApiError::not_found(&what))?;
        self.authorize(operation, self.relation_to_user(&row.worker.user), &what)?;
        Ok(row)
    }
}
