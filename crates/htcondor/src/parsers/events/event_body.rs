//! Parsers of the indented lines of an event, by its number.

use super::{CondorEventKind, JobExit, JobHold, JobUsage};
use std::collections::BTreeMap;

/// `None` if the subject of the event is unknown.
pub(super) fn parse_body(number: u16, lines: &[&str]) -> Option<CondorEventKind> {
    Some(match number {
        0 => CondorEventKind::Submitted { node: parse_dag_node(lines) },
        1 => parse_executing(lines),
        4 => CondorEventKind::Evicted {
            reason: parse_eviction_reason(lines),
            usage: JobUsage::from_lines(lines),
        },
        5 => CondorEventKind::Terminated { exit: parse_exit(lines)?, usage: JobUsage::from_lines(lines) },
        9 => CondorEventKind::Aborted { reason: first_text(lines) },
        12 => CondorEventKind::Held(parse_hold(lines)),
        13 => CondorEventKind::Released { reason: first_text(lines) },
        16 => CondorEventKind::PostScript { exit: parse_exit(lines)?, node: parse_dag_node(lines) },
        number => CondorEventKind::Other { number, text: first_text(lines) },
    })
}

fn first_text(lines: &[&str]) -> Option<String> {
    lines.iter().map(|line| line.trim()).find(|line| !line.is_empty()).map(str::to_owned)
}

fn parse_dag_node(lines: &[&str]) -> Option<String> {
    lines.iter().find_map(|line| line.trim().strip_prefix("DAG Node: ")).map(str::to_owned)
}

/// `SlotName: slot2_1@host`, then `Name = value` with strings in quotes.
fn parse_executing(lines: &[&str]) -> CondorEventKind {
    let mut slot = None;
    let mut attributes = BTreeMap::new();
    for line in lines.iter().map(|line| line.trim()) {
        if let Some(name) = line.strip_prefix("SlotName: ") {
            slot = Some(name.to_owned());
        } else if let Some((name, value)) = line.split_once(" = ") {
            attributes.insert(name.to_owned(), unquote(value));
        }
    }
    CondorEventKind::Executing { slot, attributes }
}

fn unquote(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.map_or_else(|| value.to_owned(), |text| text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// `(1) Normal termination (return value 42)` or `(0) Abnormal termination (signal 9)`.
fn parse_exit(lines: &[&str]) -> Option<JobExit> {
    lines.iter().find_map(|line| {
        let line = line.trim();
        let number = |prefix: &str| line.strip_prefix(prefix)?.strip_suffix(')')?.parse().ok();
        number("(1) Normal termination (return value ")
            .map(JobExit::Code)
            .or_else(|| number("(0) Abnormal termination (signal ").map(JobExit::Signal))
    })
}

/// The line that is neither an amount nor a remark in parentheses.
fn parse_eviction_reason(lines: &[&str]) -> Option<String> {
    let lines = lines.iter().take_while(|line| !line.trim_start().starts_with("Partitionable Resources"));
    let mut detail_lines = lines.map(|line| line.trim()).filter(|line| {
        !line.is_empty() && !line.starts_with('(') && !line.starts_with("Usr ") && !line.contains("  -  ")
    });
    detail_lines.next().map(str::to_owned)
}

fn parse_hold(lines: &[&str]) -> JobHold {
    let mut hold = JobHold::default();
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if let Some((code, subcode)) = parse_hold_code(line) {
            (hold.code, hold.subcode) = (code, subcode);
        } else if hold.reason.is_empty() {
            line.clone_into(&mut hold.reason);
        }
    }
    hold
}

/// `Code 21 Subcode 102`
fn parse_hold_code(line: &str) -> Option<(i32, i32)> {
    let (code, subcode) = line.strip_prefix("Code ")?.split_once(" Subcode ")?;
    Some((code.parse().ok()?, subcode.parse().ok()?))
}
