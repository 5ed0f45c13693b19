//! `windlass request watch`: follows requests until they are over, or until somebody has to decide about them.
//!
//! Events of the server wake it; each time it asks how the requests stand. So it shows nothing that is not in the books.

use super::{fields, known};
use crate::args::request::WatchArgs;
use crate::context::Context;
use crate::desk::Desk;
use crate::error::{CliError, Exit, Kind};
use crate::ui::live::Block;
use crate::ui::style::Paint;
use crate::ui::text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use windlass_api::requests::WorkflowStatus;
use windlass_client::{Client, Follow, RequestQuery};
use windlass_types::requests::{BlockStatus, RequestStatus};

/// No oftener than this, however much happens.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// Should nothing be heard, it is looked at anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A server that is away so long is not waited for.
const PATIENCE: Duration = Duration::from_mins(2);
const BAR: usize = 20;

/// How requests ended, as far as they did.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) last: BTreeMap<String, WorkflowStatus>,
}

pub(super) fn run(ctx: &Context, args: &WatchArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let names = if args.names.is_empty() { open(&desk)? } else { args.names.clone() };
    if names.is_empty() {
        ctx.ui.note("no request is under way");
        return Ok(Exit::Success);
    }
    for name in &names {
        known(&desk, name, desk.status(name))?;
    }
    follow(ctx, &desk, &names, args.timeout, None)
}

/// All that are not over.
pub(super) fn open(desk: &Desk) -> Result<Vec<String>, CliError> {
    let status = RequestStatus::ALL.iter().copied().filter(|status| !status.is_terminal()).collect();
    let query = RequestQuery { status, limit: Some(10_000), ..RequestQuery::default() };
    Ok(desk.requests(&query)?.items.into_iter().map(|line| line.request_name).collect())
}

/// Until all are over or held, or the time is up, or somebody says stop.
pub(super) fn follow(
    ctx: &Context,
    desk: &Desk,
    names: &[String],
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
) -> Result<Exit, CliError> {
    if desk.is_unattended() {
        ctx.ui.note("no server has this database now, so nothing happens until `windlass serve` takes it up");
    }
    let (watched, is_over) = observe(ctx, desk, names, timeout, stop)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&watched.last.values().collect::<Vec<_>>())?;
    }
    if !is_over {
        return Ok(Exit::Interrupted);
    }
    Ok(watched.exit())
}

impl Watched {
    /// The worst of them decides.
    pub(crate) fn exit(&self) -> Exit {
        let has = |statuses: &[RequestStatus]| {
            self.last.values().any(|status| statuses.contains(&status.request_status))
        };
        match () {
            () if has(&[RequestStatus::Failed, RequestStatus::Aborted]) => Exit::JobsFailed,
            () if has(&[RequestStatus::Held]) => Exit::NeedsDecision,
            () => Exit::Success,
        }
    }
}

/// Nothing more happens by itself.
const fn rests(status: RequestStatus) -> bool {
    status.is_terminal() || matches!(status, RequestStatus::Held | RequestStatus::New)
}

/// How they stood last, and whether they all rest.
pub(super) fn observe(
    ctx: &Context,
    desk: &Desk,
    names: &[String],
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
) -> Result<(Watched, bool), CliError> {
    let begun = Instant::now();
    let mut source = Source::new(ctx, desk);
    let mut screen =
        Screen { block: ctx.ui.live_block(), told: BTreeMap::new(), is_quiet: ctx.ui.is_quiet() };
    let mut watched = Watched::default();
    let mut at_rest: BTreeSet<&String> = BTreeSet::new();
    loop {
        let looked_at = Instant::now();
        for name in names {
            if !at_rest.contains(name) {
                let status = source.status(name)?;
                screen.tell(ctx, &status);
                if rests(status.request_status) && !source.is_held_in_vain(name, status.request_status)? {
                    at_rest.insert(name);
                }
                watched.last.insert(name.clone(), status);
            }
        }
        screen.draw(watched.last.values(), ctx.ui.paint_err());
        if at_rest.len() == watched.last.len() {
            return Ok((watched, true));
        }
        let is_late = timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
        if is_late || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Ok((watched, false));
        }
        source.wait(looked_at);
    }
}

/// Waits until a request is as somebody wants it.
pub(super) fn until(
    ctx: &Context,
    desk: &Desk,
    name: &str,
    is_so: impl Fn(RequestStatus) -> bool,
) -> Result<RequestStatus, CliError> {
    let mut source = Source::new(ctx, desk);
    loop {
        let looked_at = Instant::now();
        let status = source.status(name)?.request_status;
        if is_so(status) || rests(status) {
            ctx.ui.note(&format!("{name} is {status}"));
            return Ok(status);
        }
        source.wait(looked_at);
    }
}

/// Where the status comes from, also when the server is away for a moment or another one has taken over.
struct Source<'a> {
    desk: &'a Desk,
    moved: Option<Desk>,
    find_again: Option<Box<dyn Fn() -> Option<Client>>>,
    away_since: Option<Instant>,
    news: Option<Receiver<()>>,
}

impl<'a> Source<'a> {
    fn new(ctx: &Context, desk: &'a Desk) -> Self {
        let find_again = ctx.way_back().map(|find| Box::new(find) as Box<dyn Fn() -> Option<Client>>);
        Self { desk, moved: None, find_again, away_since: None, news: listen(desk) }
    }

    fn status(&mut self, name: &str) -> Result<WorkflowStatus, CliError> {
        loop {
            match self.moved.as_ref().unwrap_or(self.desk).status(name) {
                Ok(status) => {
                    self.away_since = None;
                    return Ok(status);
                }
                Err(error) if error.kind == Kind::Io && !self.desk.is_unattended() => {
                    let since = *self.away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        return Err(error);
                    }
                    thread::sleep(LOOK_AFTER);
                    let found = self.find_again.as_ref().and_then(|find| find());
                    if let Some(client) = found {
                        let desk = Desk::Server(Box::new(client));
                        self.news = listen(&desk);
                        self.moved = Some(desk);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Somebody has said what is to become of it, which is not done yet.
    fn is_held_in_vain(&self, name: &str, status: RequestStatus) -> Result<bool, CliError> {
        if status != RequestStatus::Held || self.desk.is_unattended() {
            return Ok(false);
        }
        Ok(self.moved.as_ref().unwrap_or(self.desk).request(name)?.wanted.is_some())
    }

    /// Until something happened, or it is time to look anyway.
    fn wait(&self, looked_at: Instant) {
        match &self.news {
            Some(news) => {
                if news.recv_timeout(LOOK_EVERY).is_err() {
                    // Also when nobody listens any more: then it is looked at in intervals.
                    thread::sleep(LOOK_EVERY.saturating_sub(looked_at.elapsed()));
                }
                while news.try_recv().is_ok() {}
            }
            None => thread::sleep(LOOK_EVERY),
        }
        thread::sleep(LOOK_AFTER.saturating_sub(looked_at.elapsed()));
    }
}

/// Hears of every event, whatever it says: the books say what it means for a request.
fn listen(desk: &Desk) -> Option<Receiver<()>> {
    let Desk::Server(client) = desk else { return None };
    let mut events = client.follow(Follow::default());
    let (news, heard) = mpsc::sync_channel(1);
    let follow = move || {
        while events.next_event().is_ok() {
            // Full: it is about to be looked at anyway.
            if let Err(mpsc::TrySendError::Disconnected(())) = news.try_send(()) {
                break;
            }
        }
    };
    thread::Builder::new().name("events".to_owned()).spawn(follow).ok()?;
    Some(heard)
}

/// A block at the bottom of a terminal; elsewhere a line when something changes.
struct Screen {
    block: Option<Block>,
    told: BTreeMap<String, (RequestStatus, u32)>,
    is_quiet: bool,
}

impl Screen {
    fn tell(&mut self, ctx: &Context, status: &WorkflowStatus) {
        let units = status.dag.as_ref().map_or(0, |dag| dag.work_units_completed);
        let now = (status.request_status, units);
        let before = self.told.insert(status.request_name.clone(), now);
        if before == Some(now) || self.is_quiet {
            return;
        }
        let became = before.is_none_or(|(before, _)| before != status.request_status);
        match &mut self.block {
            // The block shows the rest.
            Some(block) if became => block.above(&sentence(status)),
            Some(_) => {}
            None => ctx.ui.note(&sentence(status)),
        }
    }

    fn draw<'s>(&mut self, statuses: impl Iterator<Item = &'s WorkflowStatus>, paint: Paint) {
        let Some(block) = &mut self.block else { return };
        let busy: Vec<&WorkflowStatus> = statuses.filter(|status| !rests(status.request_status)).collect();
        let width = busy.iter().map(|status| text::width(&status.request_name)).max().unwrap_or(0).min(40);
        block.draw(|columns| busy.iter().map(|status| line(status, width, columns, paint)).collect());
    }
}

fn sentence(status: &WorkflowStatus) -> String {
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
fn line(status: &WorkflowStatus, width: usize, columns: usize, paint: Paint) -> String {
    let name = text::truncate_middle(&status.request_name, width);
    let pad = " ".repeat(width.saturating_sub(text::width(&name)));
    let full = (status.progress_percent / 100.0 * BAR as f64) as usize;
    let bar = format!("{}{}", "█".repeat(full.min(BAR)), "░".repeat(BAR - full.min(BAR)));
    let mut facts = vec![format!("{:>5}%", status.progress_percent)];
    if let Some(dag) = &status.dag {
        facts.push(format!("units {}/{}", dag.work_units_completed, dag.total_work_units));
        if !status.blocks.is_empty() {
            let archived = status.blocks.iter().filter(|block| block.status == BlockStatus::Archived).count();
            facts.push(format!("blocks {archived}/{}", status.blocks.len()));
        }
        facts.push(format!("running {}", dag.nodes_running));
        if dag.nodes_failed > 0 {
            facts.push(format!("failed {}", dag.nodes_failed));
        }
    }
    let word = status.request_status.name();
    let plain = format!("{name}{pad}  {word:<12} {bar} {}", facts.join("  "));
    if text::width(&plain) > columns {
        return text::truncate(&plain, columns);
    }
    let word = paint.apply(fields::tone(status.request_status), &format!("{word:<12}"));
    format!("{name}{pad}  {word} {bar} {}", facts.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(of: &str, percent: f64) -> WorkflowStatus {
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
    fn a_line_says_how_far_it_is_and_fits() {
        let shown = line(&status("active", 50.0), 6, 100, Paint::PLAIN);
        assert_eq!(
            shown,
            format!(
                "reco    active       {}{}    50%  units 2/5  blocks 1/1  running 2  failed 1",
                "█".repeat(10),
                "░".repeat(10)
            )
        );
        assert!(text::width(&line(&status("active", 50.0), 6, 30, Paint::PLAIN)) <= 30);
    }

    #[test]
    fn the_exit_code_says_how_they_ended() {
        let ended = |words: &[&str]| {
            let last = words.iter().enumerate().map(|(n, word)| (n.to_string(), status(word, 1.0))).collect();
            Watched { last }.exit().code()
        };
        assert_eq!(ended(&["completed"]), 0);
        assert_eq!(ended(&["completed", "held"]), 6);
        assert_eq!(ended(&["held", "aborted"]), 1);
    }

    #[test]
    fn a_change_is_a_sentence() {
        assert_eq!(sentence(&status("active", 1.0)), "reco is active: 2 of 5 work units");
        assert_eq!(sentence(&status("held", 1.0)), "reco is held: no space");
    }
}
