//! `windlass request watch`: follows requests until they have ended or need a decision.
//!
//! Server events only trigger a reload of the requests, so everything shown is stored in the database.

use super::{fields, suggest_request};
use crate::args::request::RequestWatchArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::local_requests::RequestService;
use crate::ui::style::TextPainter;
use crate::ui::terminal_block::TerminalBlock;
use crate::ui::text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use windlass_api::requests::RequestWorkflowStatus;
use windlass_client::{Client, EventStreamOptions, RequestListOptions};
use windlass_types::requests::{ProcessingBlockStatus, RequestStatus};

/// Minimum time between two reloads.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Reload interval without events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which an unreachable server is given up.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(2);
const BAR_WIDTH: usize = 20;

/// The outcomes of requests that have ended.
#[derive(Debug, Default)]
pub(crate) struct LastRequestStatuses {
    pub(crate) last: BTreeMap<String, RequestWorkflowStatus>,
}

pub(super) fn run(ctx: &CliContext, args: &RequestWatchArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let names = if args.names.is_empty() { open_requests(&requests)? } else { args.names.clone() };
    if names.is_empty() {
        ctx.ui.print_note("no request is active");
        return Ok(CliExit::Success);
    }
    for name in &names {
        suggest_request(&requests, name, requests.request_status(name))?;
    }
    follow_requests(ctx, &requests, &names, args.timeout, None)
}

/// All requests that have not ended.
pub(super) fn open_requests(requests: &RequestService) -> Result<Vec<String>, CliError> {
    let status = RequestStatus::ALL.iter().copied().filter(|status| !status.is_terminal()).collect();
    let query = RequestListOptions { status, limit: Some(10_000), ..RequestListOptions::default() };
    Ok(requests.list_requests(&query)?.items.into_iter().map(|line| line.request_name).collect())
}

/// Follows the requests until all have ended or are held, the time limit is reached, or the user interrupts.
pub(super) fn follow_requests(
    ctx: &CliContext,
    requests: &RequestService,
    names: &[String],
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
) -> Result<CliExit, CliError> {
    if requests.has_no_server() {
        ctx.ui.print_note(
            "no server is using this database; requests continue when `windlass serve` is started",
        );
    }
    let (watched, is_over) = observe_until_settled(ctx, requests, names, timeout, stop)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&watched.last.values().collect::<Vec<_>>())?;
    }
    for next in watched.held_hints() {
        ctx.ui.print_note(&next);
    }
    if !is_over {
        return Ok(CliExit::Interrupted);
    }
    Ok(watched.worst_exit())
}

impl LastRequestStatuses {
    /// What an operator does about each held request.
    fn held_hints(&self) -> impl Iterator<Item = String> {
        let held = self.last.values().filter(|status| status.request_status == RequestStatus::Held);
        held.map(|status| {
            let name = text::shell_quote(&status.request_name);
            format!(
                "next: windlass request errors {name}; then windlass request release {name} --reason TEXT"
            )
        })
    }

    /// The worst outcome determines the exit code.
    pub(crate) fn worst_exit(&self) -> CliExit {
        let has = |statuses: &[RequestStatus]| {
            self.last.values().any(|status| statuses.contains(&status.request_status))
        };
        match () {
            () if has(&[RequestStatus::Failed, RequestStatus::Aborted]) => CliExit::JobsFailed,
            () if has(&[RequestStatus::Held]) => CliExit::NeedsDecision,
            () => CliExit::Success,
        }
    }
}

/// Whether nothing more happens without a user.
const fn is_settled(status: RequestStatus) -> bool {
    status.is_terminal() || matches!(status, RequestStatus::Held | RequestStatus::New)
}

/// The last known states, and whether all requests rest.
pub(super) fn observe_until_settled(
    ctx: &CliContext,
    requests: &RequestService,
    names: &[String],
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
) -> Result<(LastRequestStatuses, bool), CliError> {
    let begun = Instant::now();
    let mut source = RequestStatusSource::new(ctx, requests);
    let mut screen = RequestProgressScreen {
        terminal_block: ctx.ui.terminal_block(),
        last_printed: BTreeMap::new(),
        is_quiet: ctx.ui.is_quiet(),
    };
    let mut watched = LastRequestStatuses::default();
    let mut at_rest: BTreeSet<&String> = BTreeSet::new();
    loop {
        let looked_at = Instant::now();
        for name in names {
            if !at_rest.contains(name) {
                let status = source.status(name)?;
                screen.print_change(ctx, &status);
                if is_settled(status.request_status)
                    && !source.is_held_with_pending_command(name, status.request_status)?
                {
                    at_rest.insert(name);
                }
                watched.last.insert(name.clone(), status);
            }
        }
        screen.draw_block(watched.last.values(), ctx.ui.stderr_painter());
        if at_rest.len() == watched.last.len() {
            return Ok((watched, true));
        }
        let is_late = timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
        if is_late || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Ok((watched, false));
        }
        source.wait_for_change(looked_at);
    }
}

/// Waits until a request reaches the wanted state.
pub(super) fn wait_for_status(
    ctx: &CliContext,
    requests: &RequestService,
    name: &str,
    is_so: impl Fn(RequestStatus) -> bool,
) -> Result<RequestStatus, CliError> {
    let mut source = RequestStatusSource::new(ctx, requests);
    loop {
        let looked_at = Instant::now();
        let status = source.status(name)?.request_status;
        if is_so(status) || is_settled(status) {
            ctx.ui.print_note(&format!("{name} is {status}"));
            return Ok(status);
        }
        source.wait_for_change(looked_at);
    }
}

/// The source of the status; survives a short outage or replacement of the server.
struct RequestStatusSource<'a> {
    requests: &'a RequestService,
    new_service: Option<RequestService>,
    find_server: Option<Box<dyn Fn() -> Option<Client>>>,
    unavailable_since: Option<Instant>,
    events: Option<Receiver<()>>,
}

impl<'a> RequestStatusSource<'a> {
    fn new(ctx: &CliContext, requests: &'a RequestService) -> Self {
        let find_server = ctx.server_finder().map(|find| Box::new(find) as Box<dyn Fn() -> Option<Client>>);
        Self {
            requests,
            new_service: None,
            find_server,
            unavailable_since: None,
            events: listen_for_events(requests),
        }
    }

    fn status(&mut self, name: &str) -> Result<RequestWorkflowStatus, CliError> {
        loop {
            match self.new_service.as_ref().unwrap_or(self.requests).request_status(name) {
                Ok(status) => {
                    self.unavailable_since = None;
                    return Ok(status);
                }
                Err(error) if error.kind == CliErrorKind::Io && !self.requests.has_no_server() => {
                    let since = *self.unavailable_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > RECONNECT_TIMEOUT {
                        return Err(error);
                    }
                    thread::sleep(MIN_POLL_INTERVAL);
                    let found = self.find_server.as_ref().and_then(|find| find());
                    if let Some(client) = found {
                        let requests = RequestService::Server(Box::new(client));
                        self.events = listen_for_events(&requests);
                        self.new_service = Some(requests);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A held request with a pending command is about to change.
    fn is_held_with_pending_command(&self, name: &str, status: RequestStatus) -> Result<bool, CliError> {
        if status != RequestStatus::Held || self.requests.has_no_server() {
            return Ok(false);
        }
        Ok(self.new_service.as_ref().unwrap_or(self.requests).get_request(name)?.wanted.is_some())
    }

    /// Waits for an event, or until the next reload is due.
    fn wait_for_change(&self, looked_at: Instant) {
        match &self.events {
            Some(receiver) => {
                if receiver.recv_timeout(POLL_INTERVAL).is_err() {
                    // If the event thread has ended, reload at intervals.
                    thread::sleep(POLL_INTERVAL.saturating_sub(looked_at.elapsed()));
                }
                while receiver.try_recv().is_ok() {}
            }
            None => thread::sleep(POLL_INTERVAL),
        }
        thread::sleep(MIN_POLL_INTERVAL.saturating_sub(looked_at.elapsed()));
    }
}

/// Signals every event regardless of its content; the request itself is read from the database.
fn listen_for_events(requests: &RequestService) -> Option<Receiver<()>> {
    let RequestService::Server(client) = requests else { return None };
    let mut events = client.follow_events(EventStreamOptions::default());
    let (sender, heard) = mpsc::sync_channel(1);
    let follow = move || {
        while events.next_event().is_ok() {
            // Full: a reload is already pending.
            if let Err(mpsc::TrySendError::Disconnected(())) = sender.try_send(()) {
                break;
            }
        }
    };
    thread::Builder::new().name("events".to_owned()).spawn(follow).ok()?;
    Some(heard)
}

/// A block at the bottom of a terminal; otherwise a line per change.
struct RequestProgressScreen {
    terminal_block: Option<TerminalBlock>,
    last_printed: BTreeMap<String, (RequestStatus, u32)>,
    is_quiet: bool,
}

impl RequestProgressScreen {
    fn print_change(&mut self, ctx: &CliContext, status: &RequestWorkflowStatus) {
        let units = status.dag.as_ref().map_or(0, |dag| dag.work_units_completed);
        let now = (status.request_status, units);
        let before = self.last_printed.insert(status.request_name.clone(), now);
        if before == Some(now) || self.is_quiet {
            return;
        }
        let became = before.is_none_or(|(before, _)| before != status.request_status);
        match &mut self.terminal_block {
            // The block shows the other requests.
            Some(block) if became => block.print_above(&render_sentence(status)),
            Some(_) => {}
            None => ctx.ui.print_note(&render_sentence(status)),
        }
    }

    fn draw_block<'s>(
        &mut self,
        statuses: impl Iterator<Item = &'s RequestWorkflowStatus>,
        paint: TextPainter,
    ) {
        let Some(block) = &mut self.terminal_block else { return };
        let busy: Vec<&RequestWorkflowStatus> =
            statuses.filter(|status| !is_settled(status.request_status)).collect();
        let width =
            busy.iter().map(|status| text::display_width(&status.request_name)).max().unwrap_or(0).min(40);
        block.draw(|columns| busy.iter().map(|status| render_line(status, width, columns, paint)).collect());
    }
}

fn render_sentence(status: &RequestWorkflowStatus) -> String {
    let name = &status.request_name;
    let reason =
        status.reason.as_ref().map(|reason| format!(": {}", text::one_line(reason))).unwrap_or_default();
    match &status.dag {
        Some(dag) if status.request_status == RequestStatus::Active => {
            format!("{name} is active: {} of {} work units", dag.work_units_completed, dag.total_work_units)
        }
        _ => format!("{name} is {}{reason}", status.request_status),
    }
}

/// `reco  active     ████░░░░ 41.8%  units 12/25  blocks 1/3  running 40`
fn render_line(status: &RequestWorkflowStatus, width: usize, columns: usize, paint: TextPainter) -> String {
    let name = text::truncate_middle(&status.request_name, width);
    let pad = " ".repeat(width.saturating_sub(text::display_width(&name)));
    let full = (status.progress_percent / 100.0 * BAR_WIDTH as f64) as usize;
    let bar = format!("{}{}", "█".repeat(full.min(BAR_WIDTH)), "░".repeat(BAR_WIDTH - full.min(BAR_WIDTH)));
    let mut facts = vec![format!("{:>5}%", status.progress_percent)];
    if let Some(dag) = &status.dag {
        facts.push(format!("units {}/{}", dag.work_units_completed, dag.total_work_units));
        if !status.blocks.is_empty() {
            let archived =
                status.blocks.iter().filter(|block| block.status == ProcessingBlockStatus::Archived).count();
            facts.push(format!("blocks {archived}/{}", status.blocks.len()));
        }
        facts.push(format!("running {}", dag.nodes_running));
        if dag.nodes_failed > 0 {
            facts.push(format!("failed {}", dag.nodes_failed));
        }
    }
    let word = status.request_status.name();
    let plain = format!("{name}{pad}  {word:<12} {bar} {}", facts.join("  "));
    if text::display_width(&plain) > columns {
        return text::truncate(&plain, columns);
    }
    let word = paint.apply(fields::status_tone(status.request_status), &format!("{word:<12}"));
    format!("{name}{pad}  {word} {bar} {}", facts.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(of: &str, percent: f64) -> RequestWorkflowStatus {
        serde_json::from_value(json!({
            "workflow_id": null, "request_name": "reco", "status": "active", "request_status": of, "reason": "no space",
            "priority": 1, "step_metrics": null, "blocks": [{"dataset_name": "/A/B/C", "block_index": 0,
            "status": "archived", "work_units": "3/3", "block_name": null, "tape_rule_id": null}],
            "dag": {"id": "x", "status": "running", "total_nodes": 10, "node_counts": {}, "nodes_idle": 1,
            "nodes_running": 2, "nodes_done": 4, "nodes_failed": 1, "nodes_held": 0, "total_work_units": 5,
            "work_units_completed": 2, "work_units_failed": 0, "engine_workflow_id": null},
            "progress_percent": percent, "estimated_completion": null, "round": 0, "output_steps_pending": 0,
            "output_steps_failed": 0, "version": 1,
        }))
        .unwrap()
    }

    #[test]
    fn held_request_names_the_next_commands() {
        let statuses =
            |of| LastRequestStatuses { last: BTreeMap::from([("reco".to_owned(), status(of, 50.0))]) };
        let next: Vec<String> = statuses("held").held_hints().collect();
        assert_eq!(
            next,
            ["next: windlass request errors reco; then windlass request release reco --reason TEXT"]
        );
        assert_eq!(statuses("completed").held_hints().count(), 0);
    }

    #[test]
    fn watch_line_shows_progress_and_fits_width() {
        let shown = render_line(&status("active", 50.0), 6, 100, TextPainter::PLAIN);
        assert_eq!(
            shown,
            format!(
                "reco    active       {}{}    50%  units 2/5  blocks 1/1  running 2  failed 1",
                "█".repeat(10),
                "░".repeat(10)
            )
        );
        assert!(text::display_width(&render_line(&status("active", 50.0), 6, 30, TextPainter::PLAIN)) <= 30);
    }

    #[test]
    fn exit_code_follows_worst_request_status() {
        let ended = |words: &[&str]| {
            let last = words.iter().enumerate().map(|(n, word)| (n.to_string(), status(word, 1.0))).collect();
            LastRequestStatuses { last }.worst_exit().code()
        };
        assert_eq!(ended(&["completed"]), 0);
        assert_eq!(ended(&["completed", "held"]), 6);
        assert_eq!(ended(&["held", "aborted"]), 1);
    }

    #[test]
    fn status_change_renders_as_sentence() {
        assert_eq!(render_sentence(&status("active", 1.0)), "reco is active: 2 of 5 work units");
        assert_eq!(render_sentence(&status("held", 1.0)), "reco is held: no space");
    }
}
