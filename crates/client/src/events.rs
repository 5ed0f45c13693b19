//! Event streams: server-sent events, resumed by the id of the last one.

use crate::{Client, ClientError, ProblemDetails};
use reqwest::blocking::Response;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};
use windlass_store::model::{EventRow, EventSeverity};
use windlass_types::{EventId, WorkflowId};

/// Which events to stream.
#[derive(Clone, Debug, Default)]
pub struct EventStreamOptions {
    /// `None`: all visible workflows.
    pub workflow: Option<WorkflowId>,
    /// Start after this event; `None`: new events only.
    pub after: Option<EventId>,
    /// Minimum severity.
    pub severity: Option<EventSeverity>,
    pub category: Option<String>,
}

/// Looks up the server again; another one may have taken over.
pub type RelocateServer = Box<dyn Fn() -> Option<Client> + Send>;

/// A stream that reconnects after errors and continues where it stopped.
pub struct ServerEventStream {
    client: Client,
    options: EventStreamOptions,
    lines: Option<BufReader<Response>>,
    frame: SseFrame,
    pause: Duration,
    relocate: Option<RelocateServer>,
}

impl std::fmt::Debug for ServerEventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerEventStream").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Maximum time to wait for an unreachable server.
const MAX_SERVER_ABSENCE: Duration = Duration::from_mins(2);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

impl Client {
    pub fn follow_events(&self, follow: EventStreamOptions) -> ServerEventStream {
        let (client, frame) = (self.clone(), SseFrame::default());
        ServerEventStream {
            client,
            options: follow,
            lines: None,
            frame,
            pause: RECONNECT_PAUSE,
            relocate: None,
        }
    }
}

impl ServerEventStream {
    /// Sets how to look up the server again when it does not answer.
    #[must_use]
    pub fn relocated_by(mut self, relocate: Option<RelocateServer>) -> Self {
        self.relocate = relocate;
        self
    }

    /// Opens the connection; no later event is missed.
    pub fn connect(&mut self) -> Result<(), ClientError> {
        if self.lines.is_none() {
            self.lines = Some(BufReader::new(self.open_stream()?));
        }
        Ok(())
    }

    /// Waits for the next event.
    pub fn next_event(&mut self) -> Result<EventRow, ClientError> {
        let mut away_since = None;
        loop {
            if let Err(error) = self.connect() {
                let since = *away_since.get_or_insert_with(Instant::now);
                // A restarted server has a new owner token.
                let may_be_known = error.is_unknown_token() && self.relocate.is_some();
                if !(error.is_transient() || may_be_known) || since.elapsed() > MAX_SERVER_ABSENCE {
                    return Err(error);
                }
                let before = self.client.clone();
                std::thread::sleep(self.pause);
                if let Some(client) = self.relocate.as_ref().and_then(|find| find()) {
                    self.client = client;
                }
                if may_be_known && self.client.is_same_server(&before) {
                    return Err(error);
                }
                continue;
            }
            away_since = None;
            match self.read_event() {
                Some(Ok(event)) => {
                    self.options.after = Some(event.id);
                    return Ok(event);
                }
                Some(Err(source)) => {
                    return Err(ClientError::Response { url: self.client.url().to_owned(), source });
                }
                // Disconnected as too slow, or the server stopped.
                None => {
                    (self.lines, self.frame) = (None, SseFrame::default());
                    std::thread::sleep(self.pause);
                }
            }
        }
    }

    /// Returns the next event of this connection; `None` when it has ended.
    fn read_event(&mut self) -> Option<Result<EventRow, serde_json::Error>> {
        let lines = self.lines.as_mut()?;
        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(data) = self.frame.take_line(line.trim_end_matches(['\n', '\r'])) {
                return Some(serde_json::from_str(&data));
            }
            if let Some(pause) = self.frame.retry.take() {
                self.pause = pause;
            }
        }
    }

    fn open_stream(&self) -> Result<Response, ClientError> {
        let EventStreamOptions { workflow, after, severity, category } = &self.options;
        let asked = [
            ("workflow", workflow.map(|id| id.to_string())),
            ("severity", severity.map(|severity| severity.to_string())),
            ("category", category.clone()),
        ];
        let asked = asked.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let mut get = self.client.http.get(self.client.url_with_query("/api/v1/events/stream", asked)?);
        if let Some(after) = after {
            get = get.header("last-event-id", after.0.to_string());
        }
        // No total timeout: each read may take as long as any call, and the server sends keep-alives more
        // often.
        let answer = self.client.send(get.header("accept", "text/event-stream"))?;
        let kind =
            answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return Ok(answer);
        }
        Err(ClientError::Rejected(Box::new(ProblemDetails { status: 404, ..ProblemDetails::default() })))
    }
}

/// Assembles an event from its lines.
#[derive(Debug, Default)]
struct SseFrame {
    data: Option<String>,
    retry: Option<Duration>,
}

impl SseFrame {
    /// Returns the data of an event if this line ends it.
    fn take_line(&mut self, line: &str) -> Option<String> {
        if line.is_empty() {
            return self.data.take();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis),
            // The id is also in the data; a line without a field is a keep-alive.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sse_events_are_assembled_from_lines() {
        let mut frame = SseFrame::default();
        let text = ": following\nretry: 250\n\nid: 3\nevent: job\ndata: {\"a\":1,\ndata:\"b\":2}\n\n:\n\ndata: x\n\n";
        let frames: Vec<String> = text.lines().filter_map(|line| frame.take_line(line)).collect();
        assert_eq!(frames, ["{\"a\":1,\n\"b\":2}", "x"]);
        assert_eq!(frame.retry, Some(Duration::from_millis(250)));
    }
}
