//! Upload of a new workflow as a stream of lines: the workflow first, then its files, user data and jobs, and a
//! last line with their numbers. Neither side has to hold all of it in memory.
//!
//! Commands may contain ids that only the server can assign. They are transferred as placeholders.

use super::rpc_error::{ErrorCategory, RemoteError};
use crate::model::{
    CompletedWork, FirstIds, JobSource, NewAction, NewFile, NewJob, NewRequirements, NewUserData, NewWorkflow,
};
use crate::{Store, StoreError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Seek};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{JobDefinition, JobGroup, JobId, JobStatus, Resources, Timestamp, WorkflowId};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UploadLine {
    Workflow(Box<WorkflowHeader>),
    File(FileLine),
    UserData(super::OwnedUserData),
    Job(Box<JobLine>),
    /// The last line; without it the upload is incomplete.
    End {
        files: u64,
        user_data: u64,
        jobs: u64,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct WorkflowHeader {
    name: String,
    user: String,
    description: Option<String>,
    submission_dir: String,
    output_dir: String,
    spec_path: Option<String>,
    spec_digest: Option<String>,
    env: Vec<(String, String)>,
    stdio: StdioSettings,
    settings: Option<WorkflowSettings>,
    requirements: Vec<(String, Resources)>,
    failure_handlers: Vec<FailureHandler>,
    schedulers: Vec<SlurmScheduler>,
    kinds: Vec<JobGroup<u32>>,
    actions: Vec<(WorkflowAction, Vec<u32>)>,
    edges: DependencyEdges,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileLine {
    name: String,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identifier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime_ns: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct JobLine {
    /// Its command is empty if it has pieces.
    #[serde(flatten)]
    definition: JobDefinition<u32>,
    /// The command, if ids have to be inserted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command_pieces: Vec<CommandPiece>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<u32>,
    status: JobStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reused_from: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reused_work: Option<CompletedWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    input_files: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output_files: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    input_user_data: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output_user_data: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CommandPiece {
    Text(String),
    /// The id of the job, file or user data with this index.
    Job(i64),
    File(i64),
    UserData(i64),
}

// ---- sender ----

/// Sends a workflow.
pub(super) struct WorkflowUpload {
    lines: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
}

/// Chunk size.
const CHUNK_BYTES: usize = 64 << 10;

impl WorkflowUpload {
    /// Passes the lines to `bring` while they are produced.
    pub(super) fn send_workflow(
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        bring: impl FnOnce(Box<dyn Read + Send>) -> Result<Vec<u8>, StoreError> + Send,
    ) -> Result<Vec<u8>, StoreError> {
        let (sender, receiver) = sync_channel(4);
        std::thread::scope(|scope| {
            let arriving = scope
                .spawn(move || bring(Box::new(ChunkReader { receiver, chunk: Vec::new(), position: 0 })));
            let mut upload = Self { lines: sender, chunk: Vec::with_capacity(CHUNK_BYTES) };
            // If the reader stopped, its own error tells why.
            let sent = upload.send_lines(workflow, source);
            drop(upload);
            let answer =
                arriving.join().unwrap_or_else(|_| Err(broken_upload_error("the upload was interrupted")));
            sent.unwrap_or(Ok(()))?;
            answer
        })
    }

    /// `None`: the other side stopped reading.
    fn send_lines(
        &mut self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
    ) -> Option<Result<(), StoreError>> {
        let marks = IdPlaceholders::new();
        self.send_line(&UploadLine::Workflow(Box::new(WorkflowHeader::new(workflow))))?;
        source.set_first_ids(marks.first);
        let (mut files, mut user_data, mut jobs) = (0, 0, 0);
        while let Some(file) = source.next_file() {
            files += 1;
            self.send_line(&UploadLine::File(FileLine::new(&file)))?;
        }
        while let Some(data) = source.next_user_data() {
            user_data += 1;
            self.send_line(&UploadLine::UserData(super::OwnedUserData::new(&data)))?;
        }
        while let Some(job) = source.next_job() {
            jobs += 1;
            self.send_line(&UploadLine::Job(Box::new(JobLine::new(&job, marks))))?;
        }
        self.send_line(&UploadLine::End { files, user_data, jobs })?;
        self.flush()?;
        Some(Ok(()))
    }

    fn send_line(&mut self, line: &UploadLine) -> Option<()> {
        // A line consists of texts, numbers and lists of them, so serializing it to memory cannot fail.
        serde_json::to_writer(&mut self.chunk, line).ok()?;
        self.chunk.push(b'\n');
        if self.chunk.len() < CHUNK_BYTES { Some(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Option<()> {
        let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.lines.send(full).ok()
    }
}

/// A reader of the sender's output.
struct ChunkReader {
    receiver: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    position: usize,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.position == self.chunk.len() {
            match self.receiver.recv() {
                Ok(chunk) => (self.chunk, self.position) = (chunk, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = (&self.chunk[self.position..]).read(buffer)?;
        self.position += n;
        Ok(n)
    }
}

/// Placeholder ids: where one occurs in a command, the assigned id is inserted.
#[derive(Clone, Copy)]
struct IdPlaceholders {
    first: FirstIds,
}

/// Number of ids after a placeholder base.
const IDS_PER_PLACEHOLDER: i64 = 1 << 32;
const DIGITS: usize = 19;

impl IdPlaceholders {
    /// Random numbers of 19 digits, so that they do not occur in commands by accident.
    fn new() -> Self {
        let random = |at: i64| at + i64::from((uuid::Uuid::new_v4().as_u128() >> 96) as u32) * (1 << 27);
        let first = FirstIds {
            job: random(4_000_000_000_000_000_000),
            file: random(5_000_000_000_000_000_000),
            user_data: random(6_000_000_000_000_000_000),
        };
        Self { first }
    }

    fn find_placeholder(self, id: i64) -> Option<CommandPiece> {
        let number = |first: i64| id.checked_sub(first).filter(|n| (0..IDS_PER_PLACEHOLDER).contains(n));
        let FirstIds { job, file, user_data } = self.first;
        let job = number(job).map(CommandPiece::Job);
        job.or_else(|| number(file).map(CommandPiece::File))
            .or_else(|| number(user_data).map(CommandPiece::UserData))
    }

    /// Returns the pieces of a command; empty if it contains no placeholders.
    fn split_command(self, text: &str) -> Vec<CommandPiece> {
        let mut pieces = Vec::new();
        let mut done = 0;
        for (start, digits) in digit_windows(text) {
            if let Some(piece) = digits.parse().ok().and_then(|id| self.find_placeholder(id)) {
                pieces.push(CommandPiece::Text(text[done..start].to_owned()));
                pieces.push(piece);
                done = start + digits.len();
            }
        }
        if !pieces.is_empty() {
            pieces.push(CommandPiece::Text(text[done..].to_owned()));
        }
        pieces
    }
}

/// Finds possible placeholders in a text: windows of 19 digits. Other digits may be adjacent.
fn digit_windows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let starts = 0..(bytes.len() + 1).saturating_sub(DIGITS);
    starts.filter_map(move |start| {
        let window = &bytes[start..start + DIGITS];
        let is_number = matches!(window[0], b'4'..=b'6') && window.iter().all(u8::is_ascii_digit);
        is_number.then(|| (start, &text[start..start + DIGITS]))
    })
}

impl WorkflowHeader {
    fn new(new: &NewWorkflow<'_>) -> Self {
        Self {
            name: new.name.to_owned(),
            user: new.user.to_owned(),
            description: new.description.map(str::to_owned),
            submission_dir: new.submission_dir.to_owned(),
            output_dir: new.output_dir.to_owned(),
            spec_path: new.spec_path.map(str::to_owned),
            spec_digest: new.spec_digest.map(str::to_owned),
            env: new.env.to_vec(),
            stdio: new.stdio,
            settings: new.settings.cloned(),
            requirements: new.requirements.iter().map(|r| (r.name.to_owned(), r.resources)).collect(),
            failure_handlers: new.failure_handlers.to_vec(),
            schedulers: new.schedulers.to_vec(),
            kinds: new.job_groups.to_vec(),
            actions: new.actions.iter().map(|a| (a.action.clone(), a.jobs.to_vec())).collect(),
            edges: new.edges.clone(),
        }
    }
}

impl FileLine {
    fn new(file: &NewFile<'_>) -> Self {
        let identifier = file.identifier.map(str::to_owned);
        Self { name: file.name.to_owned(), path: file.path.to_owned(), identifier, mtime_ns: file.mtime_ns }
    }
}

impl JobLine {
    fn new(job: &NewJob<'_>, marks: IdPlaceholders) -> Self {
        let mut definition = job.definition.clone().into_owned();
        let command_pieces = marks.split_command(&definition.command);
        if !command_pieces.is_empty() {
            definition.command.clear();
        }
        Self {
            definition,
            command_pieces,
            params: job.params.map(str::to_owned),
            kind: job.job_group,
            unit: job.unit,
            status: job.status,
            reused_from: job.reused_from,
            reused_work: job.reused_work.cloned(),
            input_files: job.input_files.to_vec(),
            output_files: job.output_files.to_vec(),
            input_user_data: job.input_user_data.to_vec(),
            output_user_data: job.output_user_data.to_vec(),
        }
    }
}

// ---- receiver ----

/// Creates a workflow from its lines, which have been received completely and can be read again. `user` is its
/// owner, regardless of the lines.
///
/// All lines are validated before anything is created, because creating holds the write lock.
pub fn create_from_lines(
    store: &dyn Store,
    lines: impl Read + Seek,
    user: Option<&str>,
    now: Timestamp,
) -> Result<WorkflowId, StoreError> {
    let mut lines = BufReader::new(lines);
    check_lines(&mut lines)?;
    lines.rewind().map_err(|e| broken_upload_error(&e.to_string()))?;
    let Some(UploadLine::Workflow(mut header)) = next_line(&mut lines, &mut String::new())? else {
        return Err(broken_upload_error("the first line is not a workflow"));
    };
    if let Some(user) = user {
        user.clone_into(&mut header.user);
    }
    let mut source =
        UploadReader { from: lines, text: String::new(), line: None, is_consumed: true, first: None };
    let requirements: Vec<_> = header.requirements.iter().map(new_requirements).collect();
    let actions: Vec<_> = header.actions.iter().map(|(action, jobs)| NewAction { action, jobs }).collect();
    let new = NewWorkflow {
        name: &header.name,
        user: &header.user,
        description: header.description.as_deref(),
        submission_dir: &header.submission_dir,
        output_dir: &header.output_dir,
        spec_path: header.spec_path.as_deref(),
        spec_digest: header.spec_digest.as_deref(),
        env: &header.env,
        stdio: header.stdio,
        settings: header.settings.as_ref(),
        requirements: &requirements,
        failure_handlers: &header.failure_handlers,
        schedulers: &header.schedulers,
        job_groups: &header.kinds,
        actions: &actions,
        edges: &header.edges,
    };
    let groups = find_access_groups(store, header.settings.as_ref())?;
    let id = store.create_workflow(&new, &mut source, now)?;
    groups.into_iter().try_for_each(|group| store.share_workflow(id, group, now).map(drop))?;
    Ok(id)
}

/// Finds the access groups that a spec shares its workflow with, before anything is created.
fn find_access_groups(
    store: &dyn Store,
    settings: Option<&WorkflowSettings>,
) -> Result<Vec<i64>, StoreError> {
    let names = settings.map(|settings| settings.access_groups.as_slice()).unwrap_or_default();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = store.groups()?;
    let find = |name: &String| {
        let group = known.iter().find(|group| group.name == *name);
        group.map(|group| group.id).ok_or_else(|| missing_group_error(name))
    };
    names.iter().map(find).collect()
}

fn missing_group_error(name: &str) -> StoreError {
    let message = format!("there is no access group `{name}`");
    let hint =
        Some("`windlass auth access-groups list` lists access groups; an admin can create one".to_owned());
    RemoteError { category: ErrorCategory::Wrong, code: "no_such_group".to_owned(), message, hint }.into()
}

fn new_requirements((name, resources): &(String, Resources)) -> NewRequirements<'_> {
    NewRequirements { name, resources: *resources }
}

/// Validates that every line can be parsed, that they are in order, and that none is missing.
fn check_lines(lines: &mut impl BufRead) -> Result<(), StoreError> {
    let mut text = String::new();
    let (mut stage, mut counts) = (None, (0, 0, 0));
    while let Some(line) = next_line(lines, &mut text)? {
        let its_stage = match &line {
            UploadLine::Workflow(_) => 0,
            UploadLine::File(_) => 1,
            UploadLine::UserData(_) => 2,
            UploadLine::Job(_) => 3,
            UploadLine::End { .. } => 4,
        };
        // One workflow line; any number of the others.
        if stage.map_or(its_stage != 0, |stage: i32| its_stage < stage.max(1)) {
            return Err(broken_upload_error("the lines are not in order"));
        }
        stage = Some(its_stage);
        match line {
            UploadLine::Workflow(_) => {}
            UploadLine::File(_) => counts.0 += 1,
            UploadLine::UserData(_) => counts.1 += 1,
            UploadLine::Job(_) => counts.2 += 1,
            UploadLine::End { files, user_data, jobs } if counts == (files, user_data, jobs) => return Ok(()),
            UploadLine::End { .. } => return Err(broken_upload_error("lines are missing")),
        }
    }
    Err(broken_upload_error("the end is missing"))
}

fn next_line(lines: &mut impl BufRead, text: &mut String) -> Result<Option<UploadLine>, StoreError> {
    text.clear();
    let read = lines.read_line(text).map_err(|e| broken_upload_error(&e.to_string()))?;
    if read == 0 {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|e| broken_upload_error(&e.to_string()))
}

fn broken_upload_error(what: &str) -> StoreError {
    let message = format!("the workflow upload is incomplete or invalid: {what}");
    RemoteError { category: ErrorCategory::Wrong, code: "bad_upload".to_owned(), message, hint: None }.into()
}

/// The lines after the first one, already validated.
struct UploadReader<R> {
    from: R,
    text: String,
    /// The last line read; possibly of a later type than requested.
    line: Option<UploadLine>,
    is_consumed: bool,
    first: Option<FirstIds>,
}

impl<R: BufRead> UploadReader<R> {
    fn next_matching(&mut self, wanted: impl Fn(&UploadLine) -> bool) -> Option<&UploadLine> {
        // A line that was only peeked at is kept.
        if self.is_consumed {
            self.line = next_line(&mut self.from, &mut self.text).ok().flatten();
        }
        let line = self.line.as_ref().filter(|line| wanted(line));
        self.is_consumed = line.is_some();
        line
    }
}

impl<R: BufRead> JobSource for UploadReader<R> {
    fn set_first_ids(&mut self, first: FirstIds) {
        self.first = Some(first);
    }

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        let UploadLine::File(file) = self.next_matching(|line| matches!(line, UploadLine::File(_)))? else {
            return None;
        };
        let identifier = file.identifier.as_deref();
        Some(NewFile { name: &file.name, path: &file.path, identifier, mtime_ns: file.mtime_ns })
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        match self.next_matching(|line| matches!(line, UploadLine::UserData(_)))? {
            UploadLine::UserData(data) => Some(data.as_new()),
            _ => None,
        }
    }

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        self.next_matching(|line| matches!(line, UploadLine::Job(_)))?;
        let (Some(UploadLine::Job(job)), Some(first)) = (&mut self.line, self.first) else { return None };
        fill_placeholders(&mut job.definition.command, &job.command_pieces, first);
        Some(NewJob {
            definition: Cow::Borrowed(&job.definition),
            params: job.params.as_deref(),
            job_group: job.kind,
            unit: job.unit,
            status: job.status,
            reused_from: job.reused_from,
            reused_work: job.reused_work.as_ref(),
            input_files: &job.input_files,
            output_files: &job.output_files,
            input_user_data: &job.input_user_data,
            output_user_data: &job.output_user_data,
        })
    }
}

/// Appends the pieces of a command with the assigned ids.
fn fill_placeholders(text: &mut String, pieces: &[CommandPiece], first: FirstIds) {
    for piece in pieces {
        let id = match piece {
            CommandPiece::Text(piece) => {
                text.push_str(piece);
                continue;
            }
            CommandPiece::Job(number) => first.job.saturating_add(*number),
            CommandPiece::File(number) => first.file.saturating_add(*number),
            CommandPiece::UserData(number) => first.user_data.saturating_add(*number),
        };
        // Writing to a string cannot fail.
        write!(text, "{id}").unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_commands_become_placeholders_and_ids_again() {
        let marks = IdPlaceholders::new();
        let (u, j) = (marks.first.user_data + 3, marks.first.job);
        let text = format!("echo 7{u}9 4711 {j} 4000000000000000000 ä");
        let pieces = marks.split_command(&text);
        assert_eq!(pieces[..2], [CommandPiece::Text("echo 7".into()), CommandPiece::UserData(3)]);
        let mut filled = String::new();
        fill_placeholders(&mut filled, &pieces, FirstIds { job: 10, file: 20, user_data: 30 });
        assert_eq!(filled, "echo 7339 4711 10 4000000000000000000 ä");
        assert_eq!(marks.split_command("true"), []);
    }

    #[test]
    fn lost_and_reordered_lines_are_detected() {
        let header = serde_json::to_string(&UploadLine::Workflow(Box::default())).unwrap();
        let file = r#"{"file":{"name":"f","path":"p"}}"#;
        let data = r#"{"user_data":{"name":"u","is_ephemeral":false}}"#;
        let end = |files, data| format!(r#"{{"end":{{"files":{files},"user_data":{data},"jobs":0}}}}"#);
        let told = |lines: &[&str]| check_lines(&mut lines.join("\n").as_bytes()).map_err(|e| e.to_string());
        assert_eq!(told(&[&header, file, data, &end(1, 1)]), Ok(()));
        assert_eq!(told(&[&header, &end(0, 0)]), Ok(()));
        for (lines, complaint) in [
            (vec![header.as_str(), file], "end is missing"),
            (vec![&header, file, &end(2, 0)], "missing"),
            (vec![&header, data, file, &end(1, 1)], "order"),
            (vec![&header, &header, &end(0, 0)], "order"),
            (vec![file, &end(1, 0)], "order"),
            (vec![&header, "{", &end(0, 0)], "invalid"),
            (vec![], "end is missing"),
        ] {
            let said = told(&lines).unwrap_err();
            assert!(said.contains(complaint), "{lines:?}: {said}");
        }
    }
}
