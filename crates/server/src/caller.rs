//! Who calls, and what he may do.

use crate::connections::Connection;
use crate::error::{Answer, ApiError};
use crate::routes::events::Sees;
use crate::state::{AppState, blocking};
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use windlass_auth::{
    Binding, Denied, Operation, PeerCertificate, Principal, Relation, Shown, Verdict, judge, remedy,
};
use windlass_engine::service::{May, Sponsor};
use windlass_store::Store;
use windlass_store::model::{WorkerRow, WorkflowRow};
use windlass_types::fleet::{Introduction, JobsOf};
use windlass_types::{AllocationId, Timestamp, WorkerId, WorkflowId};

/// The other end of a connection, in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// What the certificate says that it showed; checked against the client CA.
    pub certificate: Option<Arc<PeerCertificate>>,
    pub(crate) connection: Option<Arc<Connection>>,
}

/// Somebody whose credentials were checked. A handler that takes one answers nobody else.
#[derive(Clone, Debug)]
pub struct Caller(pub Principal);

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }
        Credential::of(parts).admit(state).await.map(Self).map_err(ApiError::from)
    }
}

/// What a request showed of who it is. For whatever lasts, to be looked at again: it may be good no more.
#[derive(Clone)]
pub(crate) struct Credential {
    peer: Option<Peer>,
    authorization: Option<String>,
}

impl Credential {
    pub(crate) fn of(parts: &Parts) -> Self {
        let peer = parts.extensions.get::<Peer>().cloned();
        // A header that is no text is shown and wrong, not missing.
        let mut headers = parts.headers.get_all(AUTHORIZATION).iter();
        let authorization = headers.next().map(|header| header.to_str().unwrap_or_default().to_owned());
        // Two of them: whoever is in front of us may have looked at the other one.
        let authorization = authorization.map(|header| headers.next().map_or(header, |_| String::new()));
        Self { peer, authorization }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.peer.as_ref().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address.ip())
    }

    /// Counts the connection as one of this user's.
    pub(crate) fn authenticated(&self, user: &Arc<str>) -> Answer<()> {
        let connection = self.peer.as_ref().and_then(|peer| peer.connection.as_ref());
        connection.map_or(Ok(()), |connection| connection.authenticated(user))
    }

    fn shown(&self, now: Timestamp) -> Shown<'_> {
        Shown {
            authorization: self.authorization.as_deref(),
            certificate: self.peer.as_ref().and_then(|peer| peer.certificate.as_deref()),
            address: self.address(),
            now,
            clock: Instant::now(),
        }
    }

    /// Who it is, if that is known without asking anybody; `None`: not, or nobody.
    pub(crate) fn known(&self, state: &AppState) -> Option<Principal> {
        state.auth.admit_quickly(&self.shown(state.now())).and_then(Result::ok)
    }

    pub(crate) async fn admit(&self, state: &AppState) -> Result<Principal, Denied> {
        if let Some(known) = state.auth.admit_quickly(&self.shown(state.now())) {
            return known;
        }
        // A slow hash, or keys that have to be fetched.
        let (this, gate, now) = (self.clone(), Arc::clone(&state.auth), state.now());
        let slowly = blocking(move || gate.admit(&this.shown(now))).await;
        slowly.unwrap_or(Err(Denied::Unavailable))
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::UNAUTHORIZED);
        let error = Self::new(status, denied.code(), denied.to_string()).with_hint(denied.hint());
        match denied.retry_after() {
            Some(wait) => error.retry_after(wait),
            None => error,
        }
    }
}

impl Caller {
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// Whether he may do this to `what`, which is this to him.
    pub fn may(&self, operation: Operation, relation: Relation, what: impl fmt::Display) -> Answer<()> {
        let verdict = judge(operation, self.0.role, self.0.scopes, relation);
        let refused = match verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Hide => return Err(ApiError::not_found(what)),
            Verdict::ForbidScope => ApiError::forbidden("the token is not good for this"),
            Verdict::ForbidRole => ApiError::forbidden(format!("as {} you may not do this", self.0.role)),
        };
        Err(match remedy(operation, verdict, relation) {
            Some(remedy) => refused.with_hint(remedy),
            None => refused,
        })
    }

    /// What a workflow is to him.
    fn relation(&self, store: &dyn Store, workflow: &WorkflowRow) -> Result<Relation, windlass_store::Error> {
        if !self.0.reaches(workflow.id) {
            return Ok(Relation::Other);
        }
        if workflow.user == *self.0.user {
            return Ok(Relation::Own);
        }
        let is_shared = store.is_shared_with(workflow.id, &self.0.user)?;
        Ok(if is_shared { Relation::Shared } else { Relation::Other })
    }

    /// The workflow, if he may do this to it.
    pub async fn workflow(
        &self,
        state: &AppState,
        operation: Operation,
        id: WorkflowId,
    ) -> Answer<WorkflowRow> {
        let what = format!("workflow {id}");
        // Want of a scope or role is told before anything is looked at.
        self.may(operation, Relation::Own, &what)?;
        let caller = self.clone();
        let found = state.books(move |store| caller.find(store, id)).await?;
        let (row, relation) = found.ok_or_else(|| ApiError::not_found(&what))?;
        self.may(operation, relation, &what)?;
        Ok(row)
    }

    fn find(
        &self,
        store: &dyn Store,
        id: WorkflowId,
    ) -> Result<Option<(WorkflowRow, Relation)>, windlass_store::Error> {
        let Some(row) = store.workflow(id)? else { return Ok(None) };
        let relation = self.relation(store, &row)?;
        Ok(Some((row, relation)))
    }

    /// Whether he may know of a workflow.
    pub(crate) fn reads(&self, store: &dyn Store, id: WorkflowId) -> bool {
        self.may_with(store, Operation::ReadWorkflow, id)
    }

    /// Whether he may know the values of its secrets.
    pub(crate) fn reads_secrets(&self, store: &dyn Store, id: WorkflowId) -> bool {
        self.may_with(store, Operation::ReadSecrets, id)
    }

    fn may_with(&self, store: &dyn Store, operation: Operation, id: WorkflowId) -> bool {
        let found = self.find(store, id).ok().flatten();
        found.is_some_and(|(_, relation)| self.may(operation, relation, "").is_ok())
    }

    /// Which events he may know of.
    pub(crate) async fn sees_events(&self, state: &AppState, workflow: Option<WorkflowId>) -> Answer<Sees> {
        self.may(Operation::Look, Relation::Own, "event")?;
        if let Some(id) = workflow {
            self.workflow(state, Operation::ReadWorkflow, id).await?;
            // The subscription holds nothing else, and his right to it is looked at again and again.
            return Ok(Sees::All);
        }
        if self.0.sees_all() {
            return Ok(Sees::All);
        }
        let (caller, store) = (self.clone(), Arc::clone(&state.store));
        Ok(Sees::asking(state.options.check_rights, move |id| caller.reads(&*store, id)))
    }

    /// Whose jobs a worker may take: those of its user, of the users that it names if its user may work for them, and those of
    /// the one workflow that it is for. Others' jobs run with the account of the worker, so it takes none that it did not ask for.
    pub(crate) async fn works_for(&self, state: &AppState, asks: &Introduction) -> Answer<Sponsor> {
        let only = asks.workflow;
        match &self.0.bound {
            Some(Binding::Allocation { allocation, workflow }) => {
                self.is_in_allocation(state, asks, *allocation, *workflow).await?;
            }
            Some(_) => return Err(ApiError::forbidden("the token of a job introduces no worker")),
            None => {
                if let Some(id) = only {
                    self.workflow(state, Operation::Work, id).await?;
                }
            }
        }
        let is_operator = self.0.sees_all();
        if asks.jobs_of == JobsOf::All && !is_operator {
            return Err(ApiError::forbidden(format!("as {} you may not run everybody's jobs", self.0.role))
                .with_hint(
                    "it takes the role operator; `--jobs-of USER` names users who share workflows with you",
                ));
        }
        let (who, store, jobs_of) = (self.clone(), Arc::clone(&state.store), asks.jobs_of.clone());
        let may: May = Arc::new(move |row| {
            if who.0.bound.is_some() {
                return who.0.reaches(row.id);
            }
            // What is shared today may not be tomorrow.
            let is_asked_for = Some(row.id) == only || jobs_of.includes(&row.user);
            row.user == *who.0.user || (is_asked_for && who.may_with(&*store, Operation::Work, row.id))
        });
        // One that was introduced by an operator for others' jobs needs an operator to speak for it.
        let sees_all = is_operator && asks.jobs_of != JobsOf::Own;
        Ok(Sponsor { user: Arc::clone(&self.0.user), sees_all, may })
    }

    /// The token of an allocation introduces workers there, and delivers what an earlier worker there has left.
    async fn is_in_allocation(
        &self,
        state: &AppState,
        asks: &Introduction,
        allocation: AllocationId,
        workflow: WorkflowId,
    ) -> Answer<()> {
        let is_here = asks.allocation == Some(allocation.0) && asks.workflow == Some(workflow);
        let is_heir = match (&asks.before, asks.allocation, asks.workflow) {
            (Some(before), None, None) => {
                let before = before.worker;
                let row = state.books(move |store| store.worker(before)).await?;
                row.is_some_and(|row| row.worker.allocation == Some(allocation.0))
            }
            _ => false,
        };
        if (is_here && asks.slurm.is_some()) || is_heir {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("this token is for workers in allocation {allocation} alone")))
    }

    /// What something of this user is to him.
    pub(crate) fn relation_to(&self, user: &str) -> Relation {
        if *user == *self.0.user { Relation::Own } else { Relation::Other }
    }

    /// The worker, if he may do this to it.
    pub(crate) async fn worker(
        &self,
        state: &AppState,
        operation: Operation,
        id: WorkerId,
    ) -> Answer<WorkerRow> {
        let what = format!("worker {id}");
        self.may(operation, Relation::Own, &what)?;
        let row = state.books(move |store| store.worker(id)).await?;
        let row = row.ok_or_else(|| ApiError::not_found(&what))?;
        self.may(operation, self.relation_to(&row.worker.user), &what)?;
        Ok(row)
    }
}
