//! Adds, changes and deletes requests.
//!
//! The changes of a commit are pipelined. Each must affect a row: if one does not, all are rolled back, and the
//! actual state is looked up for the error.

use super::row_decoding::WHOLE_BLOCK;
use crate::StoreError;
use crate::db::{SqlConnection, SqlValue, StatementPipeline, values};
use crate::error::SqlError;
use crate::sql::datasets::DATASET_AND_OWNER;
use crate::sql::requests as sql;
use crate::sql_store::column_decoding::render_json;
use serde_json::Map;
use windlass_core::requests::change::{BlockChange, RequestChange, RequestCommit, RunChange};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, NewBan, OutputStep, OutputStepKind, RequestFileRow, RunEvent, RunRow,
};
use windlass_types::Timestamp;
use windlass_types::requests::{Request, RequestOverrides, RequestRunStatus, RequestStatus};

pub(super) fn missing_request(name: &str) -> SqlError {
    StoreError::NoSuchName { what: "request".into(), name: name.to_owned() }.into()
}

pub(super) fn add_request(
    db: &impl SqlConnection,
    request: &Request,
    status: RequestStatus,
    by: &str,
    now: Timestamp,
) -> Result<i64, SqlError> {
    let name = &request.request_name;
    if db.exists(sql::REQUEST_EXISTS, [name])? {
        return Err(StoreError::NameTaken { what: "a request".into(), name: name.clone() }.into());
    }
    if let Some(previous) = &request.previous_version_request
        && !db.exists(sql::REQUEST_EXISTS, [previous])?
    {
        return Err(missing_request(previous));
    }
    check_outputs(db, request)?;
    let texts = RequestColumns::from_request(request)?;
    db.execute_values(sql::INSERT_REQUEST, &texts.values(request, status, now))?;
    for dataset in &request.output_datasets {
        db.execute(sql::CLAIM_OUTPUT, values![dataset, name])?;
    }
    db.execute(sql::ADD_TRANSITION, values![name, None::<&str>, status.name(), now.0, by, None::<&str>])?;
    Ok(1)
}

/// Two requests never write to one dataset, nor does one write to a dataset that is already in the catalog.
fn check_outputs(db: &impl SqlConnection, request: &Request) -> Result<(), SqlError> {
    for dataset in &request.output_datasets {
        if let Some(by) = find_output_conflict(db, dataset, &request.request_name)? {
            return Err(StoreError::OutputTaken { dataset: dataset.clone(), by }.into());
        }
    }
    Ok(())
}

/// Returns why a request may not write to a dataset; `None`: it may.
pub(super) fn find_output_conflict(
    db: &impl SqlConnection,
    dataset: &str,
    request: &str,
) -> Result<Option<String>, SqlError> {
    let writer =
        db.query_optional(sql::WRITER_OF_OUTPUT, values![dataset, request], |row| row.get::<String>(0))?;
    if let Some(writer) = writer {
        return Ok(Some(format!("request `{writer}` writes it")));
    }
    let owner = db.query_optional(DATASET_AND_OWNER, [dataset], |row| row.get::<Option<String>>(1))?;
    Ok(owner.map(|owner| match owner {
        Some(owner) => format!("it is already in the catalog and belongs to `{owner}`"),
        None => "it is already in the catalog".to_owned(),
    }))
}

/// The JSON columns of a request.
struct RequestColumns {
    payload: String,
    document: String,
    steps: String,
}

impl RequestColumns {
    fn from_request(request: &Request) -> Result<Self, SqlError> {
        Ok(Self {
            payload: render_json(&request.payload_config)?,
            document: render_json(&Request { payload_config: Map::new(), ..request.clone() })?,
            steps: render_json(&request.production_steps)?,
        })
    }

    /// The columns of a new row.
    fn values<'v>(
        &'v self,
        request: &'v Request,
        status: RequestStatus,
        now: Timestamp,
    ) -> [SqlValue<'v>; 12] {
        values![
            request.request_name,
            status.name(),
            request.priority,
            i64::from(request.urgent),
            request.campaign.as_deref(),
            request.requestor,
            self.steps,
            request.previous_version_request.as_deref(),
            request.superseded_by_request.as_deref(),
            now.0,
            self.document,
            self.payload,
        ]
    }
}

/// Returns the new version.
pub(super) fn apply_commit(db: &impl SqlConnection, commit: &RequestCommit) -> Result<i64, SqlError> {
    for change in &commit.changes {
        if let RequestChange::AddVersion(next, _) = change {
            check_outputs(db, next)?;
        }
    }
    let sent = db.pipeline(|line| {
        let mut line = RequestChangeWriter { pipeline: line, number: 0, commit };
        line.send(sql::NEXT_VERSION, &values![commit.at.0, commit.request, commit.version])?;
        for (number, change) in (1..).zip(&commit.changes) {
            line.number = number;
            line.apply_change(change)?;
        }
        Ok(())
    });
    match sent {
        Ok(()) => Ok(commit.version + 1),
        Err(SqlError::NoRowAffected(number)) => Err(explain_mismatch(db, commit, number)?),
        Err(fault) => Err(fault),
    }
}

/// Sends the statements of one change.
struct RequestChangeWriter<'l> {
    pipeline: &'l mut dyn StatementPipeline,
    /// Number of the change, from 1; 0 is the version.
    number: usize,
    commit: &'l RequestCommit,
}

impl RequestChangeWriter<'_> {
    fn send(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<(), SqlError> {
        self.pipeline.send(self.number, sql, values)
    }

    fn apply_change(&mut self, change: &RequestChange) -> Result<(), SqlError> {
        let RequestCommit { request, by, at, .. } = self.commit;
        match change {
            RequestChange::Status { from, to, reason } => {
                let (from, to, reason) = (from.name(), to.name(), reason.as_deref());
                self.send(sql::SET_STATUS, &values![to, at.0, reason, request, from])?;
                self.send(sql::ADD_TRANSITION, &values![request, from, to, at.0, by, reason])
            }
            RequestChange::Priority(priority) => self.send(sql::SET_PRIORITY, &values![*priority, request]),
            RequestChange::ProductionSteps(steps) => {
                let steps = render_json(steps)?;
                self.send(sql::SET_PRODUCTION_STEPS, &values![steps, request])
            }
            RequestChange::Urgent(urgent) => {
                self.send(sql::SET_URGENT, &values![i64::from(*urgent), request])
            }
            RequestChange::SupersededBy(other) => {
                self.send(sql::SET_SUPERSEDED_BY, &values![other.as_deref(), request])
            }
            RequestChange::SetCommand(wanted) => {
                let wanted = wanted.as_ref().map(render_json).transpose()?;
                self.send(sql::SET_WANTED, &values![wanted.as_deref(), request])
            }
            RequestChange::Overrides(overrides) => {
                let overrides = render_json(overrides)?;
                self.send(sql::SET_OVERRIDES, &values![overrides, request])
            }
            RequestChange::Ban(ban) => self.add_ban(ban),
            RequestChange::AddVersion(next, overrides) => self.add_version(next, overrides),
            RequestChange::BlockedReason(by) => self.send(sql::SET_REASON, &values![by, request]),
            RequestChange::SetAlertedAt(at) => {
                self.send(sql::SET_ALERTED, &values![at.map(|at| at.0), request])
            }
            RequestChange::Process(process) => {
                let document = render_json(process)?;
                self.send(sql::PUT_PROCESS, &values![process.uuid, request, document])
            }
            RequestChange::AddRun(run) => self.add_run(run),
            RequestChange::Run { run, change } => self.change_run(run, change),
            RequestChange::FailureTally { run, tally } => {
                let tally = render_json(&**tally)?;
                self.send(sql::PUT_TALLY, &values![run, tally])
            }
            RequestChange::RecordRunEvent(event) => self.add_run_event(event),
            RequestChange::AddBlock(block) => self.add_block(block),
            RequestChange::Block { block, change } => self.change_block(block, change),
            RequestChange::AddStep(step) => self.add_step(step),
            RequestChange::Step {
                block,
                unit,
                kind,
                state,
                attempts,
                due_at,
                first_failed_at,
                last_error,
                result,
            } => {
                let values = values![
                    state.name(),
                    *attempts,
                    due_at.0,
                    first_failed_at.map(|at| at.0),
                    last_error.as_deref(),
                    result.as_deref(),
                    block,
                    unit_column(*unit),
                    kind.name(),
                ];
                self.send(sql::SET_STEP, &values)
            }
            RequestChange::Alert(alert) => {
                let about = alert.request.as_deref().unwrap_or(request);
                let detail = render_json(&alert.detail)?;
                self.send(sql::ADD_ALERT_IN_COMMIT, &values![alert.kind, about, alert.message, detail, at.0])
            }
        }
    }

    fn add_ban(&mut self, ban: &NewBan) -> Result<(), SqlError> {
        let data = render_json(&ban.failure_data)?;
        let (request, at) = (ban.request.as_deref(), self.commit.at.0);
        let values = values![request, ban.reason, data, ban.by, at, ban.expires_at.0, ban.site];
        self.send(sql::ADD_BAN_IN_COMMIT, &values)
    }

    fn add_version(&mut self, next: &Request, overrides: &RequestOverrides) -> Result<(), SqlError> {
        let RequestCommit { by, at, .. } = self.commit;
        let (texts, status) = (RequestColumns::from_request(next)?, RequestStatus::Submitted);
        self.send(sql::INSERT_VERSION, &texts.values(next, status, *at))?;
        let noted = values![next.request_name, None::<&str>, status.name(), at.0, by, None::<&str>];
        self.send(sql::ADD_TRANSITION, &noted)?;
        if !overrides.is_empty() {
            let overrides = render_json(overrides)?;
            self.send(sql::SET_OVERRIDES, &values![overrides, next.request_name])?;
        }
        for dataset in &next.output_datasets {
            self.send(sql::CLAIM_OUTPUT, &values![dataset, next.request_name])?;
        }
        Ok(())
    }

    fn add_run(&mut self, run: &RunRow) -> Result<(), SqlError> {
        let (totals, counts) = (render_json(&run.totals)?, render_json(&run.counts)?);
        let (name, workflow, engine_run, schedd, cluster) = backend_columns(&run.backend);
        let values = values![
            run.uuid,
            run.process,
            run.round,
            run.parent.as_deref(),
            run.status.name(),
            name,
            workflow,
            engine_run,
            schedd,
            cluster,
            run.submit_dir,
            run.stop_requested_at.map(|at| at.0),
            run.stop_reason.as_deref(),
            totals,
            counts,
            run.units_completed,
            run.units_failed,
            run.units_read,
            run.created_at.0,
            run.submitted_at.map(|at| at.0),
            run.completed_at.map(|at| at.0),
            run.cause.name(),
            run.rescues,
            run.paused.map(|at| at.0),
            run.silent.map(|at| at.0),
            run.priority,
        ];
        self.send(sql::ADD_RUN, &values)
    }

    fn change_run(&mut self, run: &str, change: &RunChange) -> Result<(), SqlError> {
        let now = self.commit.at;
        match change {
            RunChange::Status { from, to } => {
                let submitted = (*to == RequestRunStatus::Submitted).then_some(now.0);
                let over = to.is_over().then_some(now.0);
                let (from, to) = (from.name(), to.name());
                self.send(sql::SET_RUN_STATUS, &values![to, submitted, over, run, from])?;
                self.send(sql::ADD_RUN_STATUS_EVENT, &values![from, to, now.0, run])
            }
            RunChange::AssignBackend(backend) => {
                let (name, workflow, number, schedd, cluster) = backend_columns(backend);
                self.send(sql::SET_RUN_BACKEND, &values![workflow, number, schedd, cluster, run, name])
            }
            RunChange::Totals(totals) => {
                let totals = render_json(totals)?;
                self.send(sql::SET_RUN_TOTALS, &values![totals, run])
            }
            RunChange::Counts(counts) => {
                let counts = render_json(counts)?;
                self.send(sql::SET_RUN_COUNTS, &values![counts, run])
            }
            RunChange::Units { completed, failed, read } => {
                self.send(sql::SET_RUN_UNITS, &values![*completed, *failed, *read, run])
            }
            RunChange::Stop { at, reason } => self.send(sql::SET_RUN_STOP, &values![at.0, reason, run]),
            RunChange::Pause(since) => self.send(sql::SET_RUN_PAUSE, &values![since.map(|at| at.0), run]),
            RunChange::Priority(priority) => self.send(sql::SET_RUN_PRIORITY, &values![*priority, run]),
            RunChange::Unresponsive(since) => {
                self.send(sql::SET_RUN_SILENT_SINCE, &values![since.map(|at| at.0), run])
            }
        }
    }

    fn add_run_event(&mut self, event: &RunEvent) -> Result<(), SqlError> {
        let (counts, detail) = (render_json(&event.counts)?, render_json(&event.detail)?);
        let (from, to) = (event.from.map(RequestRunStatus::name), event.to.map(RequestRunStatus::name));
        let values = values![event.run, event.event_type, from, to, counts, detail, event.at.0];
        self.send(sql::ADD_RUN_EVENT, &values)
    }

    fn add_block(&mut self, block: &BlockRow) -> Result<(), SqlError> {
        let values = values![
            block.uuid,
            block.process,
            block.round,
            block.dataset,
            block.index,
            block.first_unit,
            block.last_unit,
            block.units_completed,
            block.name.as_deref(),
            i64::from(block.is_closed),
            block.tape_rule.as_deref(),
            block.status.name(),
            block.created_at.0,
            block.updated_at.0,
            block.units_expected,
        ];
        self.send(sql::ADD_BLOCK, &values)
    }

    fn change_block(&mut self, block: &str, change: &BlockChange) -> Result<(), SqlError> {
        let now = self.commit.at.0;
        match change {
            BlockChange::Status { from, to } => {
                self.send(sql::SET_BLOCK_STATUS, &values![to.name(), now, block, from.name()])
            }
            BlockChange::Opened { name } => self.send(sql::SET_BLOCK_NAME, &values![name, now, block]),
            BlockChange::Closed => self.send(sql::SET_BLOCK_CLOSED, &values![now, block]),
            BlockChange::UnitsCompleted(n) => self.send(sql::SET_BLOCK_UNITS, &values![*n, now, block]),
            BlockChange::UnitsExpected(n) => self.send(sql::SET_BLOCK_EXPECTED, &values![*n, now, block]),
            BlockChange::TapeRule(rule) => self.send(sql::SET_BLOCK_TAPE_RULE, &values![rule, now, block]),
        }
    }

    fn add_step(&mut self, step: &OutputStep) -> Result<(), SqlError> {
        let detail = if step.detail.is_null() { None } else { Some(render_json(&step.detail)?) };
        let values = values![
            step.block,
            unit_column(step.unit),
            step.kind.name(),
            step.state.name(),
            step.attempts,
            step.due_at.0,
            step.first_failed_at.map(|at| at.0),
            step.last_error.as_deref(),
            step.result.as_deref(),
            detail.as_deref(),
        ];
        self.send(sql::ADD_STEP, &values)
    }
}

fn unit_column(unit: Option<u32>) -> i64 {
    unit.map_or(WHOLE_BLOCK, i64::from)
}

/// Returns the error for a change that affected no row: its object does not exist, or is in another state.
fn explain_mismatch(
    db: &impl SqlConnection,
    commit: &RequestCommit,
    number: usize,
) -> Result<SqlError, SqlError> {
    let RequestCommit { request, version, changes, .. } = commit;
    let found = db.query_optional(sql::STATUS_AND_VERSION, [request], |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?))
    })?;
    let Some((status, found)) = found else { return Ok(missing_request(request)) };
    let Some(change) = number.checked_sub(1).and_then(|n| changes.get(n)) else {
        return Ok(StoreError::Outdated { request: request.clone(), expected: *version, found }.into());
    };
    let (what, expected, found) = match change {
        RequestChange::Status { from, .. } => (format!("request `{request}`"), from.name(), Some(status)),
        RequestChange::Run { run, change } => {
            let expected = match change {
                RunChange::Status { from, .. } => from.name(),
                RunChange::AssignBackend(backend) => match backend {
                    BackendRunRef::Engine { .. } => "a run of the engine",
                    BackendRunRef::Htcondor { .. } => "a run of HTCondor",
                },
                _ => "present",
            };
            (format!("run {run}"), expected, db.query_optional(sql::STATUS_OF_RUN, [run], |row| row.get(0))?)
        }
        RequestChange::Block { block, change } => {
            let expected = match change {
                BlockChange::Status { from, .. } => from.name(),
                _ => "present",
            };
            (
                format!("block {block}"),
                expected,
                db.query_optional(sql::STATUS_OF_BLOCK, [block], |row| row.get(0))?,
            )
        }
        RequestChange::Step { block, unit, kind, .. } => {
            (render_step_name(block, *unit, *kind), "present", None)
        }
        RequestChange::Process(process) => {
            let other = Some("one of another request".to_owned());
            (format!("process {}", process.uuid), "one of this request", other)
        }
        RequestChange::Ban(ban) => (format!("site {}", ban.site), "present", None),
        RequestChange::AddVersion(next, _) => {
            let name = next.request_name.clone();
            return Ok(StoreError::NameTaken { what: "a request".into(), name }.into());
        }
        // No other change can fail to affect a row while its request exists.
        _ => return Ok(SqlError::NoRowAffected(number)),
    };
    let found = found.map_or_else(|| "it does not exist".to_owned(), |found| format!("is {found}"));
    Ok(StoreError::Unexpected { what, expected: expected.to_owned(), found }.into())
}

fn render_step_name(block: &str, unit: Option<u32>, kind: OutputStepKind) -> String {
    let unit = unit.map_or_else(String::new, |unit| format!(" of work unit {unit}"));
    format!("step `{}`{unit} of block {block}", kind.name())
}

/// Each is created or replaced as a whole; the others stay as they are.
pub(super) fn put_files(
    db: &impl SqlConnection,
    process: &str,
    rows: &[RequestFileRow],
) -> Result<(), SqlError> {
    db.pipeline(|line| {
        for (number, row) in rows.iter().enumerate() {
            let left = row.left.as_ref().map(render_json).transpose()?;
            let values = values![
                process,
                row.lfn,
                row.state.name(),
                row.round,
                left.as_deref(),
                row.reason.as_deref()
            ];
            line.send(number, sql::PUT_FILE_ROW, &values)?;
        }
        Ok(())
    })
}

pub(super) fn delete_request(db: &impl SqlConnection, name: &str) -> Result<(), SqlError> {
    let status = db.query_optional(sql::STATUS_AND_VERSION, [name], |row| {
        super::row_decoding::read_enum::<RequestStatus>(row, 0)
    })?;
    let status = status.ok_or_else(|| missing_request(name))?;
    let in_use = |by: String| SqlError::from(StoreError::InUse { what: format!("request `{name}`"), by });
    if !status.is_terminal() {
        return Err(in_use(format!("it is {status}; abort it first")));
    }
    if let Some(later) = db.query_optional(sql::LATER_VERSION, [name], |row| row.get::<String>(0))? {
        return Err(in_use(format!("`{later}` is a later version of it")));
    }
    for sql in sql::DELETE_REQUEST {
        db.execute(sql, [name])?;
    }
    Ok(())
}

/// `backend`, `workflow_id`, `run_id`, `schedd`, `cluster`.
fn backend_columns(backend: &BackendRunRef) -> (&str, Option<i64>, Option<i64>, Option<&str>, Option<&str>) {
    match backend {
        BackendRunRef::Engine { workflow, run } => {
            (backend.name(), workflow.map(|id| id.0), run.map(|id| id.0), None, None)
        }
        BackendRunRef::Htcondor { schedd, cluster } => {
            (backend.name(), None, None, schedd.as_deref(), cluster.as_deref())
        }
    }
}
