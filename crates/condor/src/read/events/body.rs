//! The indented lines of an event, by its number.

use super::{Exit, Hold, Usage, What};
use std::collections::BTreeMap;

/// `None` if what the event is about cannot be told from it.
pub(super) fn read(number: u16, lines: &[&str]) -> Option<What> {
    Some(match number {
        0 => What::Submitted { node: node(lines) },
        1 => executing(lines),
        4 => What::Evicted { reason: eviction_reason(lines), usage: Usage::read(lines) },
        5 => What::Terminated { exit: exit(lines)?, usage: Usage::read(lines) },
        9 => What::Aborted { reason: first(lines) },
        12 => What::Held(hold(lines)),
        13 => What::Released { reason: first(lines) },
        16 => What::PostScript { exit: exit(lines)?, node: node(lines) },
        number => What::Other { number, text: first(lines) },
    })
}

fn first(lines: &[&str]) -> Option<String> {
    lines.iter().map(|line| line.trim()).find(|line| !line.is_empty()).map(str::to_owned)
}

fn node(lines: &[&str]) -> Option<String> {
    lines.iter().find_map(|line| line.trim().strip_prefix("DAG Node: ")).map(str::to_owned)
}

/// `SlotName: slot2_1@host`, then `Name = value` with strings in quotes.
fn executing(lines: &[&str]) -> What {
    let mut slot = None;
    let mut attributes = BTreeMap::new();
    for line in lines.iter().map(|line| line.trim()) {
        if let Some(name) = line.strip_prefix("SlotName: ") {
            slot = Some(name.to_owned());
        } else if let Some((name, value)) = line.split_once(" = ") {
            attributes.insert(name.to_owned(), unquoted(value));
        }
    }
    What::Executing { slot, attributes }
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    inner.map_or_else(|| value.to_owned(), |text| text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// `(1) Normal termination (return value 42)` or `(0) Abnormal termination (signal 9)`.
fn exit(lines: &[&str]) -> Option<Exit> {
    lines.iter().find_map(|line| {
        let line = line.trim();
        let number = |prefix: &str| line.strip_prefix(prefix)?.strip_suffix(')')?.parse().ok();
        number("(1) Normal termination (return value ")
            .map(Exit::Code)
            .or_else(|| number("(0) Abnormal termination (signal ").map(Exit::Signal))
    })
}

/// The line that is neither an amount nor a remark in parentheses.
fn eviction_reason(lines: &[&str]) -> Option<String> {
    let lines = lines.iter().take_while(|line| !line.trim_start().starts_with("Partitionable Resources"));
    let mut told = lines.map(|line| line.trim()).filter(|line| {
        !line.is_empty() && !line.starts_with('(') && !line.starts_with("Usr ") && !line.contains("  -  ")
    });
    told.next().map(str::to_owned)
}

fn hold(lines: &[&str]) -> Hold {
    let mut hold = Hold::default();
    for line in lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
        if let Some((code, subcode)) = hold_code(line) {
            (hold.code, hold.subcode) = (code, subcode);
        } else if hold.reason.is_empty() {
            line.clone_into(&mut hold.reason);
        }
    }
    hold
}

/// `Code 21 Subcode 102`
fn hold_code(line: &str) -> Option<(i32, i32)> {
    let (code, subcode) = line.strip_prefix("Code ")?.split_once(" Subcode ")?;
    Some((code.parse().ok()?, subcode.parse().ok()?))
}
