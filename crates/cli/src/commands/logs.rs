//! `windlass logs`: shows the output of a job.

use crate::args::WorkflowRef;
use crate::args::logs::LogShowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs::{self, LogStream};
use crate::log_cursor::LogCursor;
use crate::object_selection;
use crate::workflow_view;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_insight::log_tail::skip_to_last_lines;
use windlass_store::Store;
use windlass_store::model::{JobRow, ResultFilter, WorkflowRow};
use windlass_types::worker_messages::{AttemptKey, StdioSettings};
use windlass_types::{Attempt, JobId, JobStatus, RunId, WorkflowId};

/// Poll interval: network filesystems do not notify when a file has grown.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn show_logs(ctx: &CliContext, args: &LogShowArgs) -> Result<CliExit, CliError> {
    if args.follow {
        return follow_logs(ctx, args);
    }
    let store = ctx.open_read()?;
    let (workflow, job) = object_selection::find_job_anywhere(&*store, &args.job, &args.workflow)?;
    let stdio = job_logs::load_stdio(&*store, &workflow, job.id)?;
    let mut streams = selected_streams(args, &job, stdio)?;
    let key = select_attempt(args, &*store, &workflow, &job)?;
    if args.stdout == args.stderr && job_logs::recovery_log(&workflow, key).is_some() {
        streams.push(LogStream::Recovery);
    }
    let host = attempt_host(ctx, &*store, key)?;
    print_logs(
        ctx,
        &AttemptLogSelection { workflow: &workflow, job: &job, key, stdio, streams, remote_host: host },
        args.tail,
    )?;
    Ok(CliExit::Success)
}

pub(crate) fn follow_logs(ctx: &CliContext, args: &LogShowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, job) = object_selection::find_job_anywhere(&*store, &args.job, &args.workflow)?;
    let stdio = job_logs::load_stdio(&*store, &workflow, job.id)?;
    let streams = selected_streams(args, &job, stdio)?;
    LogFollower { ctx, store: &*store, workflow: workflow.id, job: job.id, streams, last_heading: None }
        .run(args.tail)?;
    Ok(CliExit::Success)
}

fn selected_streams(
    args: &LogShowArgs,
    job: &JobRow,
    stdio: StdioSettings,
) -> Result<Vec<LogStream>, CliError> {
    let both = args.stdout == args.stderr;
    let wanted = |stream: &LogStream| match stream {
        LogStream::Stdout => both || args.stdout,
        LogStream::Stderr => both || args.stderr,
        LogStream::Combined | LogStream::Recovery => true,
    };
    let streams: Vec<LogStream> = job_logs::kept_streams(stdio.mode).iter().copied().filter(wanted).collect();
    if streams.is_empty() {
        let message = format!("this output of job `{}` was not kept", job.name);
        return Err(CliError::user(message).with_hint("because of `stdio` in its spec"));
    }
    Ok(streams)
}

/// All attempts of the job, in all runs, that may have produced output, in order.
fn list_attempts(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Vec<(RunId, Attempt)>, CliError> {
    let filter = ResultFilter { job: Some(job.id), all_runs: true, ..ResultFilter::default() };
    let ended = store.results(workflow.id, &filter)?;
    let mut attempts: Vec<_> = ended.iter().map(|row| (row.key.run_id, row.key.attempt_id)).collect();
    if job.status.is_active() {
        attempts.push((workflow.run_id, job.attempt_id));
    }
    attempts.sort_unstable();
    attempts.dedup();
    Ok(attempts)
}

fn select_attempt(
    args: &LogShowArgs,
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<AttemptKey, CliError> {
    let all = list_attempts(store, workflow, job)?;
    let newest = all.last().map(|(run, _)| *run);
    let run = args.run.or(newest).unwrap_or(workflow.run_id);
    let attempts: Vec<Attempt> = all.into_iter().filter(|(r, _)| *r == run).map(|(_, a)| a).collect();
    let chosen = match args.attempt {
        None => attempts.last().copied(),
        Some(number) => attempts.iter().copied().find(|attempt| attempt.0 == number),
    };
    let key = |attempt| AttemptKey { workflow: workflow.id, job: job.id, run, attempt };
    chosen.map(key).ok_or_else(|| attempt_not_found_error(args, workflow, job, run, &attempts))
}

fn attempt_not_found_error(
    args: &LogShowArgs,
    workflow: &WorkflowRow,
    job: &JobRow,
    run: RunId,
    attempts: &[Attempt],
) -> CliError {
    let name = &job.name;
    match (attempts, args.attempt) {
        ([], _) if args.run.is_none() => {
            let did = if job.status.is_settled() { "did not run" } else { "has not run yet" };
            CliError::user(format!("job `{name}` {did}; it is {}", job.status))
                .with_hint(format!("`windlass status {}` shows the state of the workflow", workflow.id))
        }
        ([], _) => CliError::user(format!("job `{name}` did not run in run {run}")).with_hint(format!(
            "`windlass jobs results {} --job {} --all-runs` lists its attempts",
            workflow.id, job.id
        )),
        (_, Some(number)) => {
            let list = attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            CliError::user(format!("job `{name}` has no attempt {number} in run {run}"))
                .with_hint(format!("attempts: {list}"))
        }
        (_, None) => CliError::internal("an attempt was found and not selected"),
    }
}

/// `logs` without `--follow`.
struct AttemptLogSelection<'a> {
    workflow: &'a WorkflowRow,
    job: &'a JobRow,
    key: AttemptKey,
    stdio: StdioSettings,
    streams: Vec<LogStream>,
    /// The host where the attempt ran, if it is another one.
    remote_host: Option<String>,
}

/// The host where a worker of a server ran this attempt, if it is another one and the caller may see it.
fn attempt_host(ctx: &CliContext, store: &dyn Store, key: AttemptKey) -> Result<Option<String>, CliError> {
    let Some(client) = ctx.server()? else { return Ok(None) };
    let filter = ResultFilter { job: Some(key.job), all_runs: true, ..ResultFilter::default() };
    let results = store.results(key.workflow, &filter)?;
    let ended = results.iter().find(|row| (row.key.run_id, row.key.attempt_id) == (key.run, key.attempt));
    let host = ended.and_then(|row| client.worker_host(row.worker_id).ok());
    Ok(host.filter(|host| *host != windlass_process::machine::hostname()))
}

fn print_logs(
    ctx: &CliContext,
    shown: &AttemptLogSelection<'_>,
    tail: Option<usize>,
) -> Result<(), CliError> {
    let files: Vec<(LogStream, PathBuf, Option<File>)> = shown
        .streams
        .iter()
        .map(|stream| {
            let path = job_logs::log_path(shown.workflow, shown.key, *stream);
            open_log(&path, tail).map(|file| (*stream, path, file))
        })
        .collect::<Result<_, _>>()?;
    if files.iter().all(|(_, _, file)| file.is_none())
        && let Some(error) = missing_logs_error(shown)
    {
        return Err(error);
    }
    if ctx.ui.wants_json() { print_logs_json(ctx, shown, files) } else { print_logs_text(ctx, shown, files) }
}

fn print_logs_text(
    ctx: &CliContext,
    shown: &AttemptLogSelection<'_>,
    files: Vec<(LogStream, PathBuf, Option<File>)>,
) -> Result<(), CliError> {
    let headed = files.len() > 1;
    let (mut silent, mut gap) = (true, "");
    for (stream, path, file) in files {
        let Some(mut file) = file else { continue };
        let (position, length) = read_extent(&mut file).map_err(|e| read_error(&path, &e))?;
        silent &= length == 0;
        if position >= length {
            continue;
        }
        if headed {
            ctx.ui.print_line(&format!(
                "{gap}==> {}: {} <==",
                stream.name(),
                job_logs::short_path(&path, &ctx.cwd)
            ))?;
        }
        ctx.ui.print_file(&mut file, &path)?;
        gap = "\n";
    }
    if silent {
        let so_far = if shown.job.status.is_active() { " so far" } else { "" };
        let place = match shown.streams[..] {
            [stream @ (LogStream::Stdout | LogStream::Stderr)] => format!(" to {}", stream.name()),
            _ => String::new(),
        };
        let (name, attempt) = (&shown.job.name, shown.key.attempt);
        let unless = shown.remote_host.as_ref().map(|host| {
            format!(", unless {host}, where it ran, has a separate {}", shown.workflow.output_dir)
        });
        let unless = unless.unwrap_or_default();
        ctx.ui
            .print_note(&format!("job `{name}`, attempt {attempt}, printed nothing{place}{so_far}{unless}"));
    }
    Ok(())
}

#[derive(Serialize)]
struct JobLogsView<'a> {
    workflow_id: WorkflowId,
    job_id: JobId,
    job_name: &'a str,
    run_id: RunId,
    attempt_id: Attempt,
    streams: Vec<LogStreamView>,
}

#[derive(Serialize)]
struct LogStreamView {
    stream: &'static str,
    path: PathBuf,
    /// Bytes that are not UTF-8 are replaced.
    text: String,
}

fn print_logs_json(
    ctx: &CliContext,
    shown: &AttemptLogSelection<'_>,
    files: Vec<(LogStream, PathBuf, Option<File>)>,
) -> Result<(), CliError> {
    let mut streams = Vec::new();
    for (stream, path, file) in files {
        let mut bytes = Vec::new();
        if let Some(mut file) = file {
            file.read_to_end(&mut bytes).map_err(|e| read_error(&path, &e))?;
        }
        streams.push(LogStreamView {
            stream: stream.name(),
            path,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    let AttemptKey { workflow, job, run, attempt } = shown.key;
    ctx.ui.print_json(&JobLogsView {
        workflow_id: workflow,
        job_id: job,
        job_name: &shown.job.name,
        run_id: run,
        attempt_id: attempt,
        streams,
    })
}

fn open_log(path: &Path, tail: Option<usize>) -> Result<Option<File>, CliError> {
    let opened = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other,
    };
    let positioned = opened.and_then(|mut file| {
        if let Some(lines) = tail {
            skip_to_last_lines(&mut file, lines)?;
        }
        Ok(file)
    });
    positioned.map(Some).map_err(|e| read_error(path, &e))
}

/// The read position, and the end of the file.
fn read_extent(file: &mut File) -> io::Result<(u64, u64)> {
    Ok((file.stream_position()?, file.metadata()?.len()))
}

/// Why there is no file; `None` if the attempt simply printed nothing, which leaves no file.
fn missing_logs_error(shown: &AttemptLogSelection<'_>) -> Option<CliError> {
    let AttemptLogSelection { job, workflow, .. } = shown;
    if shown.stdio.delete_on_success && job.status == JobStatus::Completed {
        let message = format!("the output of job `{}`, if any, was deleted because it completed", job.name);
        return Some(
            CliError::user(message).with_hint("because of `delete_on_success` under `stdio` in the spec"),
        );
    }
    let directory = Path::new(&workflow.output_dir).join(job_logs::LOG_FOLDER);
    (!directory.is_dir()).then(|| missing_file_error(&job.name, &directory, shown.remote_host.as_deref()))
}

fn missing_file_error(job: &str, directory: &Path, host: Option<&str>) -> CliError {
    let directory = directory.display();
    match host {
        Some(host) => CliError::io(format!("job `{job}` ran on {host}; its output is there, in {directory}, and not on this machine"))
            .with_hint("read it there, or fetch logs over ssh with `windlass worker remote collect-logs`; with a shared directory neither is needed"),
        None => CliError::user(format!("the log directory {directory} does not exist"))
            .with_hint("it may have been moved or deleted"),
    }
}

fn read_error(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}

/// `--follow`: prints new output, across attempts, until the job has ended.
struct LogFollower<'a> {
    ctx: &'a CliContext,
    store: &'a dyn Store,
    workflow: WorkflowId,
    job: JobId,
    streams: Vec<LogStream>,
    last_heading: Option<LogStream>,
}

/// One line of `logs --follow --format json`.
#[derive(Serialize)]
struct LogLineView<'a> {
    job_id: JobId,
    run_id: RunId,
    attempt_id: Attempt,
    stream: &'static str,
    line: &'a str,
}

impl LogFollower<'_> {
    fn run(&mut self, mut tail: Option<usize>) -> Result<(), CliError> {
        self.warn_if_not_running()?;
        let mut current: Option<(AttemptKey, Vec<LogCursor>)> = None;
        loop {
            // The state is read before the files, so that output written before the end of the job is not
            // missed.
            let (workflow, job) = self.load_state()?;
            let over = job.status.is_settled() || job.status == JobStatus::PendingFailed;
            let attempts = list_attempts(self.store, &workflow, &job)?;
            // The newest attempt first, then each later one.
            let next = match &current {
                None => attempts.last(),
                Some((key, _)) => attempts.iter().find(|next| **next > (key.run, key.attempt)),
            };
            if let Some((key, cursors)) = &mut current {
                self.print_new(*key, cursors, over || next.is_some())?;
            }
            match next {
                Some(attempt) => current = Some(self.open_cursors(&workflow, *attempt, tail.take())),
                None if over => return Ok(()),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Cursors for the files of an attempt.
    fn open_cursors(
        &mut self,
        workflow: &WorkflowRow,
        (run, attempt): (RunId, Attempt),
        tail: Option<usize>,
    ) -> (AttemptKey, Vec<LogCursor>) {
        let key = AttemptKey { workflow: workflow.id, job: self.job, run, attempt };
        if attempt > Attempt::FIRST {
            self.ctx.ui.print_note(&format!("attempt {attempt}:"));
        }
        self.last_heading = None;
        let cursor =
            |stream: &LogStream| LogCursor::new(*stream, job_logs::log_path(workflow, key, *stream), tail);
        (key, self.streams.iter().map(cursor).collect())
    }

    fn print_new(&mut self, key: AttemptKey, cursors: &mut [LogCursor], over: bool) -> Result<(), CliError> {
        for cursor in cursors {
            let new_bytes = cursor.read_new().map_err(|e| read_error(&cursor.path, &e))?;
            if self.ctx.ui.wants_json() {
                self.print_json_lines(key, cursor, &new_bytes, over)?;
            } else if !new_bytes.is_empty() {
                self.print_heading(cursor.stream)?;
                self.ctx.ui.print_untrusted_text(&new_bytes)?;
            }
        }
        Ok(())
    }

    fn print_heading(&mut self, stream: LogStream) -> Result<(), CliError> {
        if self.streams.len() > 1 && self.last_heading != Some(stream) {
            self.ctx.ui.print_line(&format!("==> {} <==", stream.name()))?;
            self.last_heading = Some(stream);
        }
        Ok(())
    }

    fn print_json_lines(
        &self,
        key: AttemptKey,
        cursor: &mut LogCursor,
        new_bytes: &[u8],
        over: bool,
    ) -> Result<(), CliError> {
        for line in cursor.complete_lines(new_bytes, over) {
            self.ctx.ui.print_json_line(&LogLineView {
                job_id: key.job,
                run_id: key.run,
                attempt_id: key.attempt,
                stream: cursor.stream.name(),
                line: &line,
            })?;
        }
        Ok(())
    }

    fn load_state(&self) -> Result<(WorkflowRow, JobRow), CliError> {
        let workflow = object_selection::find_workflow(self.store, &WorkflowRef::Id(self.workflow))?;
        let job = object_selection::find_job_by_id(self.store, &workflow, self.job)?;
        let job = job.ok_or(CliError::from(windlass_store::StoreError::NoSuchJob(self.job)))?;
        Ok((workflow, job))
    }

    fn warn_if_not_running(&self) -> Result<(), CliError> {
        let (workflow, job) = self.load_state()?;
        if job.status.is_settled() || job.status.is_active() {
            return Ok(());
        }
        let stands = format!("job `{}` is {}", job.name, job.status);
        if workflow_view::has_active_process(self.store, &workflow) {
            self.ctx.ui.print_note(&format!("{stands}; waiting for it to start"));
        } else {
            let id = workflow.id;
            self.ctx.ui.print_warning(&format!(
                "{stands} and its workflow is not running; start it with `windlass resume {id}`"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_log_error_names_host_of_job() {
        let there = missing_file_error("a", Path::new("/out/job_stdio"), Some("node7")).to_string();
        assert!(there.contains("ran on node7") && there.contains("/out/job_stdio"), "{there}");
        let gone = missing_file_error("a", Path::new("/out/job_stdio"), None).to_string();
        assert!(gone.contains("does not exist"), "{gone}");
    }
}
