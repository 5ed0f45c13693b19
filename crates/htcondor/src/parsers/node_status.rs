//! Parser of node status files (`NODE_STATUS_FILE`): the states of all nodes of a DAG.
//!
//! ClassAds in brackets, one attribute per line, with reasons in comments that no number expresses:
//!
//! ```text
//! [
//!   Type = "DagStatus";
//!   DagStatus = 6; /* "STATUS_ERROR (aborted)" */
//!   NodesTotal = 6;
//! ]
//! ```
//!
//! The first ad is about the DAG and is enough to count: [`parse_dag_status`] stops after it, so the first few
//! hundred bytes of a file suffice. An ad without its closing bracket is ignored.

use std::borrow::Cow;

/// This many bytes hold the first ad, unless a DAG has many files.
pub const HEAD_BYTES: usize = 2048;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagStatusFile {
    pub dag: DagStatus,
    pub nodes: Vec<CondorNodeStatus>,
    /// False if its end is missing.
    pub is_complete: bool,
}

/// The DAG as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DagStatus {
    /// Unix time when the file was written.
    pub at: i64,
    pub state: CondorNodeState,
    /// The word in parentheses after the state: `failed`, `aborted`, `removed`, `held`, `cycle`, `success`.
    pub reason: String,
    pub total: u64,
    pub done: u64,
    /// Nodes whose PRE script runs.
    pub pre: u64,
    /// Nodes with a job in the queue.
    pub queued: u64,
    /// Nodes whose POST script runs.
    pub post: u64,
    pub ready: u64,
    /// Nodes that wait for other nodes.
    pub unready: u64,
    /// Nodes that depend on a failed node.
    pub futile: u64,
    /// If the DAG was removed or aborted, this includes the nodes that were active.
    pub failed: u64,
    pub held_jobs: u64,
    pub idle_jobs: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CondorNodeStatus {
    pub name: String,
    pub state: CondorNodeState,
    /// `Job proc (21.0.0) failed with status 1`, `not_idle`
    pub details: String,
    pub retries: u32,
    pub held_jobs: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CondorNodeState {
    #[default]
    NotReady,
    Ready,
    Pre,
    Submitted,
    Post,
    Done,
    Error,
    Futile,
}

impl CondorNodeState {
    fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            0 => Self::NotReady,
            1 => Self::Ready,
            2 => Self::Pre,
            3 => Self::Submitted,
            4 => Self::Post,
            5 => Self::Done,
            6 => Self::Error,
            7 => Self::Futile,
            _ => return None,
        })
    }
}

impl CondorNodeStatus {
    /// A removed or aborted DAG records its active nodes as failed, although they did not fail.
    pub fn was_stopped(&self) -> bool {
        self.state == CondorNodeState::Error && self.details.starts_with("Was STATUS_")
    }
}

/// Parses only the ad of the DAG as a whole; `file` may end anywhere after it.
pub fn parse_dag_status(file: &[u8]) -> Option<DagStatus> {
    split_ads(file).find_map(|ad| match ad.text("Type")?.as_ref() {
        "DagStatus" => ad.to_dag_status(),
        _ => None,
    })
}

/// `None` if not even the first ad is complete.
pub fn parse_status_file(file: &[u8]) -> Option<DagStatusFile> {
    let mut status = DagStatusFile { dag: parse_dag_status(file)?, ..DagStatusFile::default() };
    for ad in split_ads(file) {
        match ad.text("Type").as_deref() {
            Some("NodeStatus") => status.nodes.extend(ad.to_node_status()),
            Some("StatusEnd") => status.is_complete = true,
            _ => {}
        }
    }
    Some(status)
}

/// The lines of one ad.
struct StatusAd<'a>(Vec<&'a str>);

fn split_ads(file: &[u8]) -> impl Iterator<Item = StatusAd<'_>> {
    let mut lines = super::complete_lines(file);
    std::iter::from_fn(move || {
        let mut ad: Option<Vec<&str>> = None;
        loop {
            match (lines.next()?, &mut ad) {
                // An ad that begins within another: the one before has no end.
                (b"[", _) => ad = Some(Vec::new()),
                (b"]", Some(lines)) => return Some(StatusAd(std::mem::take(lines))),
                (line, Some(lines)) => lines.extend(str::from_utf8(line)),
                (_, None) => {}
            }
        }
    })
}

impl<'a> StatusAd<'a> {
    /// The text after `name = `, up to the end of the line.
    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(" = "))
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.value(name)?.split_once(';')?.0.parse().ok()
    }

    fn parse_amount<T: TryFrom<i64>>(&self, name: &str) -> Option<T> {
        self.number(name)?.try_into().ok()
    }

    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        unquote_classad(self.value(name)?)
    }

    /// The word in parentheses at the end of the comment of an attribute.
    fn comment_reason(&self, name: &str) -> Option<&'a str> {
        let comment = self.value(name)?.split_once("/* ")?.1;
        Some(comment.split_once('(')?.1.split_once(')')?.0)
    }

    fn to_dag_status(&self) -> Option<DagStatus> {
        Some(DagStatus {
            at: self.number("Timestamp").unwrap_or_default(),
            state: CondorNodeState::from_number(self.number("DagStatus")?)?,
            reason: self.comment_reason("DagStatus").unwrap_or_default().to_owned(),
            total: self.parse_amount("NodesTotal")?,
            done: self.parse_amount("NodesDone")?,
            pre: self.parse_amount("NodesPre").unwrap_or_default(),
            queued: self.parse_amount("NodesQueued").unwrap_or_default(),
            post: self.parse_amount("NodesPost").unwrap_or_default(),
            ready: self.parse_amount("NodesReady").unwrap_or_default(),
            unready: self.parse_amount("NodesUnready").unwrap_or_default(),
            futile: self.parse_amount("NodesFutile").unwrap_or_default(),
            failed: self.parse_amount("NodesFailed").unwrap_or_default(),
            held_jobs: self.parse_amount("JobProcsHeld").unwrap_or_default(),
            idle_jobs: self.parse_amount("JobProcsIdle").unwrap_or_default(),
        })
    }

    fn to_node_status(&self) -> Option<CondorNodeStatus> {
        Some(CondorNodeStatus {
            name: self.text("Node")?.into_owned(),
            state: CondorNodeState::from_number(self.number("NodeStatus")?)?,
            details: self.text("StatusDetails").unwrap_or_default().into_owned(),
            retries: self.parse_amount("RetryCount").unwrap_or_default(),
            held_jobs: self.parse_amount("JobProcsHeld").unwrap_or_default(),
        })
    }
}

/// Parses a ClassAd string: `"with \"quotes\""`, up to its closing quote.
fn unquote_classad(text: &str) -> Option<Cow<'_, str>> {
    let text = text.strip_prefix('"')?;
    let plain = text.find(['"', '\\'])?;
    if text.as_bytes()[plain] == b'"' {
        return Some(Cow::Borrowed(&text[..plain]));
    }
    let mut told = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => return Some(Cow::Owned(told)),
            '\\' => match characters.next()? {
                'n' => told.push('\n'),
                't' => told.push('\t'),
                other => told.push(other),
            },
            other => told.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> DagStatusFile {
        let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        parse_status_file(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn status_of_an_aborted_dag_is_parsed() {
        let status = sample("group.dag.status.aborted");
        let head = &status.dag;
        assert_eq!((head.state, head.reason.as_str()), (CondorNodeState::Error, "aborted"));
        assert_eq!((head.total, head.done, head.failed, head.futile), (6, 1, 3, 2));
        assert_eq!((status.nodes.len(), status.is_complete), (6, true));
        let stopped: Vec<_> = status.nodes.iter().filter(|node| node.was_stopped()).collect();
        assert_eq!(
            stopped.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
            ["proc_000000", "proc_000002"]
        );
        let failed = status.nodes.iter().find(|node| node.name == "proc_000001").unwrap();
        assert!(failed.details.contains("POST Script failed with status 43"), "{}", failed.details);
        assert!(!failed.was_stopped());
    }

    #[test]
    fn end_states_of_dags_are_parsed() {
        for (name, state, reason) in [
            ("workflow.dag.status.running", CondorNodeState::Submitted, ""),
            ("workflow.dag.status.failed", CondorNodeState::Error, "failed"),
            ("workflow.dag.status.removed", CondorNodeState::Error, "removed"),
            ("group.dag.status.done", CondorNodeState::Done, "success"),
        ] {
            let head = sample(name).dag;
            assert_eq!((head.state, head.reason.as_str()), (state, reason), "{name}");
        }
    }

    #[test]
    fn dag_status_is_parsed_from_the_beginning_alone() {
        let path = format!("{}/tests/data/workflow.dag.status.running", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        let whole = parse_status_file(&file).unwrap().dag;
        let end = file.windows(2).position(|two| two == b"]\n").unwrap() + 2;
        assert_eq!(parse_dag_status(&file[..end]), Some(whole));
        assert_eq!(parse_dag_status(&file[..end - 1]), None, "the line with its bracket is incomplete");
    }

    #[test]
    fn unterminated_ad_is_ignored() {
        let file = b"[\n  Type = \"NodeStatus\";\n  Node = \"a\";\n  NodeStatus = 5;\n[\n  Type = \"DagStatus\";\n  DagStatus = 3;\n  NodesTotal = 2;\n  NodesDone = 1;\n]\n]\n";
        let status = parse_status_file(file).unwrap();
        assert_eq!((status.dag.done, status.nodes.len(), status.is_complete), (1, 0, false));
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(unquote_classad(r#""a \"b\" \\ c\n"; more"#).as_deref(), Some("a \"b\" \\ c\n"));
        assert_eq!(unquote_classad(r#""plain""#).as_deref(), Some("plain"));
        assert_eq!(unquote_classad(r#""open"#), None);
        assert_eq!(unquote_classad(r#""open\"#), None);
    }
}
