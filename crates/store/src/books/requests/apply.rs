//! Adds, changes and deletes requests.
//!
//! The changes of a commit are sent together. Each must touch something: if one does not, all are undone, and it is looked
//! up what was found instead.

use super::rows::WHOLE_BLOCK;
use crate::Error;
use crate::books::column::json_text;
use crate::db::{Db, Pipeline, Value, values};
use crate::error::Fault;
use crate::sql::datasets::DATASET_AND_OWNER;
use crate::sql::requests as sql;
use serde_json::Map;
use windlass_core::requests::book::{
    Backend, BlockRow, FileRow, NewBan, OutputStep, RunEvent, RunRow, StepKind,
};
use windlass_core::requests::change::{BlockChange, Commit, RequestChange, RunChange};
use windlass_types::Timestamp;
use windlass_types::requests::{Overrides, Request, RequestStatus, RunStatus};

pub(super) fn no_request(name: &str) -> Fault {
    Error::NoSuchName { what: "request".into(), name: name.to_owned() }.into()
}

pub(super) fn add(
    db: &impl Db,
    request: &Request,
    status: RequestStatus,
    by: &str,
    now: Timestamp,
) -> Result<i64, Fault> {
    let name = &request.request_name;
    if db.exists(sql::REQUEST_EXISTS, [name])? {
        return Err(Error::NameTaken { what: "a request".into(), name: name.clone() }.into());
    }
    if let Some(previous) = &request.previous_version_request
        && !db.exists(sql::REQUEST_EXISTS, [previous])?
    {
        return Err(no_request(previous));
    }
    check_outputs(db, request)?;
    let texts = Texts::of(request)?;
    db.execute_values(sql::INSERT_REQUEST, &texts.values(request, status, now))?;
    for dataset in &request.output_datasets {
        db.execute(sql::CLAIM_OUTPUT, values![dataset, name])?;
    }
    db.execute(sql::NOTE_TRANSITION, values![name, None::<&str>, status.name(), now.0, by, None::<&str>])?;
    Ok(1)
}

/// Two requests never write into one dataset, nor one into a dataset that is in the catalog already.
fn check_outputs(db: &impl Db, request: &Request) -> Result<(), Fault> {
    for dataset in &request.output_datasets {
        if let Some(by) = taken_by(db, dataset, &request.request_name)? {
            return Err(Error::OutputTaken { dataset: dataset.clone(), by }.into());
        }
    }
    Ok(())
}

/// Why a request may not write into a dataset; `None`: it may.
pub(super) fn taken_by(db: &impl Db, dataset: &str, request: &str) -> Result<Option<String>, Fault> {
    let writer = db.optional(sql::WRITER_OF_OUTPUT, values![dataset, request], |row| row.get::<String>(0))?;
    if let Some(writer) = writer {
        return Ok(Some(format!("request `{writer}` writes it")));
    }
    let owner = db.optional(DATASET_AND_OWNER, [dataset], |row| row.get::<Option<String>>(1))?;
    Ok(owner.map(|owner| match owner {
        Some(owner) => format!("it is in the catalog already, and belongs to `{owner}`"),
        None => "it is in the catalog already".to_owned(),
    }))
}

/// What is kept of a request as JSON.
struct Texts {
    payload: String,
    document: String,
    steps: String,
}

impl Texts {
    fn of(request: &Request) -> Result<Self, Fault> {
        Ok(Self {
            payload: json_text(&request.payload_config)?,
            document: json_text(&Request { payload_config: Map::new(), ..request.clone() })?,
            steps: json_text(&request.production_steps)?,
        })
    }

    /// The columns of a new row.
    fn values<'v>(&'v self, request: &'v Request, status: RequestStatus, now: Timestamp) -> [Value<'v>; 12] {
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

/// The new version.
pub(super) fn apply(db: &impl Db, commit: &Commit) -> Result<i64, Fault> {
    for change in &commit.changes {
        if let RequestChange::AddVersion(next, _) = change {
            check_outputs(db, next)?;
        }
    }
    let sent = db.pipeline(|line| {
        let mut line = Line { pipeline: line, number: 0, commit };
        line.send(sql::NEXT_VERSION, &values![commit.at.0, commit.request, commit.version])?;
        for (number, change) in (1..).zip(&commit.changes) {
            line.number = number;
            line.change(change)?;
        }
        Ok(())
    });
    match sent {
        Ok(()) => Ok(commit.version + 1),
        Err(Fault::Untouched(number)) => Err(what_was_found(db, commit, number)?),
        Err(fault) => Err(fault),
    }
}

/// What is sent on behalf of one change.
struct Line<'l> {
    pipeline: &'l mut dyn Pipeline,
    /// Of the change, counted from 1; 0 is the version.
    number: usize,
    commit: &'l Commit,
}

impl Line<'_> {
    fn send(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<(), Fault> {
        self.pipeline.send(self.number, sql, values)
    }

    fn change(&mut self, change: &RequestChange) -> Result<(), Fault> {
        let Commit { request, by, at, .. } = self.commit;
        match change {
            RequestChange::Status { from, to, reason } => {
                let (from, to, reason) = (from.name(), to.name(), reason.as_deref());
                self.send(sql::SET_STATUS, &values![to, at.0, reason, request, from])?;
                self.send(sql::NOTE_TRANSITION, &values![request, from, to, at.0, by, reason])
            }
            RequestChange::Priority(priority) => self.send(sql::SET_PRIORITY, &values![*priority, request]),
            RequestChange::ProductionSteps(steps) => {
                let steps = json_text(steps)?;
                self.send(sql::SET_PRODUCTION_STEPS, &values![steps, request])
            }
            RequestChange::Urgent(urgent) => {
                self.send(sql::SET_URGENT, &values![i64::from(*urgent), request])
            }
            RequestChange::SupersededBy(other) => {
                self.send(sql::SET_SUPERSEDED_BY, &values![other.as_deref(), request])
            }
            RequestChange::Wanted(wanted) => {
                let wanted = wanted.as_ref().map(json_text).transpose()?;
                self.send(sql::SET_WANTED, &values![wanted.as_deref(), request])
            }
            RequestChange::Overrides(overrides) => {
                let overrides = json_text(overrides)?;
                self.send(sql::SET_OVERRIDES, &values![overrides, request])
            }
            RequestChange::Ban(ban) => self.ban(ban),
            RequestChange::AddVersion(next, overrides) => self.add_version(next, overrides),
            RequestChange::Hindered(by) => self.send(sql::SET_REASON, &values![by, request]),
            RequestChange::Alerted(at) => self.send(sql::SET_ALERTED, &values![at.map(|at| at.0), request]),
            RequestChange::Process(process) => {
                let document = json_text(process)?;
                self.send(sql::PUT_PROCESS, &values![process.uuid, request, document])
            }
            RequestChange::AddRun(run) => self.add_run(run),
            RequestChange::Run { run, change } => self.change_run(run, change),
            RequestChange::Tally { run, tally } => {
                let tally = json_text(&**tally)?;
                self.send(sql::PUT_TALLY, &values![run, tally])
            }
            RequestChange::History(event) => self.note(event),
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
                    unit_number(*unit),
                    kind.name(),
                ];
                self.send(sql::SET_STEP, &values)
            }
            RequestChange::Alert(alert) => {
                let about = alert.request.as_deref().unwrap_or(request);
                let detail = json_text(&alert.detail)?;
                self.send(sql::NOTE_ALERT, &values![alert.kind, about, alert.message, detail, at.0])
            }
        }
    }

    fn ban(&mut self, ban: &NewBan) -> Result<(), Fault> {
        let data = json_text(&ban.failure_data)?;
        let (request, at) = (ban.request.as_deref(), self.commit.at.0);
        let values = values![request, ban.reason, data, ban.by, at, ban.expires_at.0, ban.site];
        self.send(sql::NOTE_BAN, &values)
    }

    fn add_version(&mut self, next: &Request, overrides: &Overrides) -> Result<(), Fault> {
        let Commit { by, at, .. } = self.commit;
        let (texts, status) = (Texts::of(next)?, RequestStatus::Submitted);
        self.send(sql::INSERT_VERSION, &texts.values(next, status, *at))?;
        let noted = values![next.request_name, None::<&str>, status.name(), at.0, by, None::<&str>];
        self.send(sql::NOTE_TRANSITION, &noted)?;
        if !overrides.is_empty() {
            let overrides = json_text(overrides)?;
            self.send(sql::SET_OVERRIDES, &values![overrides, next.request_name])?;
        }
        for dataset in &next.output_datasets {
            self.send(sql::CLAIM_OUTPUT, &values![dataset, next.request_name])?;
        }
        Ok(())
    }

    fn add_run(&mut self, run: &RunRow) -> Result<(), Fault> {
        let (totals, counts) = (json_text(&run.totals)?, json_text(&run.counts)?);
        let (name, workflow, engine_run, schedd, cluster) = columns_of(&run.backend);
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
        ];
        self.send(sql::ADD_RUN, &values)
    }

    fn change_run(&mut self, run: &str, change: &RunChange) -> Result<(), Fault> {
        let now = self.commit.at;
        match change {
            RunChange::Status { from, to } => {
                let submitted = (*to == RunStatus::Submitted).then_some(now.0);
                let over = to.is_over().then_some(now.0);
                let (from, to) = (from.name(), to.name());
                self.send(sql::SET_RUN_STATUS, &values![to, submitted, over, run, from])?;
                self.send(sql::NOTE_RUN_STATUS, &values![from, to, now.0, run])
            }
            RunChange::HandedTo(backend) => {
                let (name, workflow, number, schedd, cluster) = columns_of(backend);
                self.send(sql::SET_RUN_PLACE, &values![workflow, number, schedd, cluster, run, name])
            }
            RunChange::Totals(totals) => {
                let totals = json_text(totals)?;
                self.send(sql::SET_RUN_TOTALS, &values![totals, run])
            }
            RunChange::Counts(counts) => {
                let counts = json_text(counts)?;
                self.send(sql::SET_RUN_COUNTS, &values![counts, run])
            }
            RunChange::Units { completed, failed, read } => {
                self.send(sql::SET_RUN_UNITS, &values![*completed, *failed, *read, run])
            }
            RunChange::Stop { at, reason } => self.send(sql::SET_RUN_STOP, &values![at.0, reason, run]),
            RunChange::Pause(since) => self.send(sql::SET_RUN_PAUSE, &values![since.map(|at| at.0), run]),
            RunChange::Silent(since) => self.send(sql::SET_RUN_SILENT, &values![since.map(|at| at.0), run]),
        }
    }

    fn note(&mut self, event: &RunEvent) -> Result<(), Fault> {
        let (counts, detail) = (json_text(&event.counts)?, json_text(&event.detail)?);
        let (from, to) = (event.from.map(RunStatus::name), event.to.map(RunStatus::name));
        let values = values![event.run, event.event_type, from, to, counts, detail, event.at.0];
        self.send(sql::NOTE_RUN_EVENT, &values)
    }

    fn add_block(&mut self, block: &BlockRow) -> Result<(), Fault> {
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

    fn change_block(&mut self, block: &str, change: &BlockChange) -> Result<(), Fault> {
        let now = self.commit.at.0;
        match change {
            BlockChange::Status { from, to } => {
                self.send(sql::SET_BLOCK_STATUS, &values![to.name(), now, block, from.name()])
            }
            BlockChange::Opened { name } => self.send(sql::SET_BLOCK_NAME, &values![name, now, block]),
            BlockChange::Closed => self.send(sql::SET_BLOCK_CLOSED, &values![now, block]),
            BlockChange::UnitsCompleted(n) => self.send(sql::SET_BLOCK_UNITS, &values![*n, now, block]),
            BlockChange::Expected(n) => self.send(sql::SET_BLOCK_EXPECTED, &values![*n, now, block]),
            BlockChange::TapeRule(rule) => self.send(sql::SET_BLOCK_TAPE_RULE, &values![rule, now, block]),
        }
    }

    fn add_step(&mut self, step: &OutputStep) -> Result<(), Fault> {
        let detail = if step.detail.is_null() { None } else { Some(json_text(&step.detail)?) };
        let values = values![
            step.block,
            unit_number(step.unit),
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

fn unit_number(unit: Option<u32>) -> i64 {
    unit.map_or(WHOLE_BLOCK, i64::from)
}

/// Why a change touched nothing: what it is about is not there, or not as it was expected to be.
fn what_was_found(db: &impl Db, commit: &Commit, number: usize) -> Result<Fault, Fault> {
    let Commit { request, version, changes, .. } = commit;
    let found = db.optional(sql::STATUS_AND_VERSION, [request], |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?))
    })?;
    let Some((status, found)) = found else { return Ok(no_request(request)) };
    let Some(change) = number.checked_sub(1).and_then(|n| changes.get(n)) else {
        return Ok(Error::Outdated { request: request.clone(), expected: *version, found }.into());
    };
    let (what, expected, found) = match change {
        RequestChange::Status { from, .. } => (format!("request `{request}`"), from.name(), Some(status)),
        RequestChange::Run { run, change } => {
            let expected = match change {
                RunChange::Status { from, .. } => from.name(),
                RunChange::HandedTo(backend) => match backend {
                    Backend::Engine { .. } => "one of the engine",
                    Backend::Htcondor { .. } => "one of HTCondor",
                },
                _ => "there",
            };
            (format!("run {run}"), expected, db.optional(sql::STATUS_OF_RUN, [run], |row| row.get(0))?)
        }
        RequestChange::Block { block, change } => {
            let expected = match change {
                BlockChange::Status { from, .. } => from.name(),
                _ => "there",
            };
            (
                format!("block {block}"),
                expected,
                db.optional(sql::STATUS_OF_BLOCK, [block], |row| row.get(0))?,
            )
        }
        RequestChange::Step { block, unit, kind, .. } => (step_name(block, *unit, *kind), "there", None),
        RequestChange::Process(process) => {
            let other = Some("one of another request".to_owned());
            (format!("process {}", process.uuid), "one of this request", other)
        }
        RequestChange::Ban(ban) => (format!("site {}", ban.site), "there", None),
        RequestChange::AddVersion(next, _) => {
            let name = next.request_name.clone();
            return Ok(Error::NameTaken { what: "a request".into(), name }.into());
        }
        // Nothing else can touch nothing while its request is there.
        _ => return Ok(Fault::Untouched(number)),
    };
    let found = found.map_or_else(|| "it is not there".to_owned(), |found| format!("is {found}"));
    Ok(Error::Unexpected { what, expected: expected.to_owned(), found }.into())
}

fn step_name(block: &str, unit: Option<u32>, kind: StepKind) -> String {
    let unit = unit.map_or_else(String::new, |unit| format!(" of work unit {unit}"));
    format!("step `{}`{unit} of block {block}", kind.name())
}

/// Each is made or replaced as a whole; the others stay as they are.
pub(super) fn put_files(db: &impl Db, process: &str, rows: &[FileRow]) -> Result<(), Fault> {
    db.pipeline(|line| {
        for (number, row) in rows.iter().enumerate() {
            let left = row.left.as_ref().map(json_text).transpose()?;
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

pub(super) fn delete(db: &impl Db, name: &str) -> Result<(), Fault> {
    let status =
        db.optional(sql::STATUS_AND_VERSION, [name], |row| super::rows::word::<RequestStatus>(row, 0))?;
    let status = status.ok_or_else(|| no_request(name))?;
    let in_use = |by: String| Fault::from(Error::InUse { what: format!("request `{name}`"), by });
    if !status.is_terminal() {
        return Err(in_use(format!("it is {status}; abort it first")));
    }
    if let Some(later) = db.optional(sql::LATER_VERSION, [name], |row| row.get::<String>(0))? {
        return Err(in_use(format!("`{later}` is a later version of it")));
    }
    for sql in sql::DELETE_REQUEST {
        db.execute(sql, [name])?;
    }
    Ok(())
}

/// `backend`, `workflow_id`, `run_id`, `schedd`, `cluster`.
fn columns_of(backend: &Backend) -> (&str, Option<i64>, Option<i64>, Option<&str>, Option<&str>) {
    match backend {
        Backend::Engine { workflow, run } => {
            (backend.name(), workflow.map(|id| id.0), run.map(|id| id.0), None, None)
        }
        Backend::Htcondor { schedd, cluster } => {
            (backend.name(), None, None, schedd.as_deref(), cluster.as_deref())
        }
    }
}
