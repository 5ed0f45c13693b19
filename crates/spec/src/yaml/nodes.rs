//! YAML nodes with their anchors and aliases resolved.
//!
//! The content of an anchor is recorded once, without expanding its aliases, so a recording is never larger than
//! the source. An alias replays its recording; a budget on replayed events stops alias bombs.

use super::syntax;
use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{DocumentNodeId, ScalarText, StopReading};
use crate::source::SourceSpan;
use granit_parser::{Event, Parser, ScalarStyle, StrInput, Tag};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Replayed events allowed for every file, and additional ones per byte of it.
const MIN_REPLAY_BUDGET: usize = 1_000_000;
const BUDGET_PER_BYTE: usize = 16;
/// A replayed scalar costs one more for each block of this many bytes.
const BYTES_PER_COST: usize = 16;
/// Maximum number of recorded events.
const MAX_RECORDED: usize = 2_000_000;

/// The nodes of one document.
pub(super) struct YamlNodes<'s> {
    text: &'s str,
    parser: Parser<'s, StrInput<'s>>,
    /// The end of the parser's last event.
    read_to: usize,
    /// All recorded events, in order.
    recorded: Vec<RecordedNode<'s>>,
    /// The recorded maps and lists that are still open, outermost first.
    open: Vec<u32>,
    /// The start of the recording of each anchor.
    anchors: FxHashMap<usize, u32>,
    replays: Vec<NodeReplay>,
    budget: usize,
}

struct RecordedNode<'s> {
    node: YamlNode<'s>,
    /// For a map or list: the index of its end, [`UNFINISHED`] while it is open. Otherwise its own index.
    end: u32,
}

const UNFINISHED: u32 = u32::MAX;

/// The next recorded event to replay, and where to stop.
#[derive(Clone, Copy)]
struct NodeReplay {
    next: u32,
    end: u32,
}

#[derive(Clone)]
pub(super) struct YamlNode<'s> {
    pub(super) kind: YamlNodeKind<'s>,
    pub(super) span: SourceSpan,
}

#[derive(Clone)]
pub(super) enum YamlNodeKind<'s> {
    MapStart(Option<DocumentNodeId>),
    SeqStart(Option<DocumentNodeId>),
    /// The end of a map or a list; its start tells which.
    End,
    Scalar(ScalarText<'s>),
    /// Only in recordings.
    Alias(usize),
    /// Already reported.
    Bad,
    DocumentStart,
    DocumentEnd,
    StreamEnd,
}

/// The result of [`YamlNodes::capture_node`].
pub(super) enum CapturedNode {
    Collection(DocumentNodeId),
    Other,
    /// Already reported.
    Bad,
}

impl<'s> YamlNodes<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        let options = granit_parser::options! { emit_comments: false, emit_unresolved_aliases: true };
        Self {
            text,
            parser: Parser::new_from_str_with_options(text, options),
            read_to: 0,
            recorded: Vec::new(),
            open: Vec::new(),
            anchors: FxHashMap::default(),
            replays: Vec::new(),
            budget: MIN_REPLAY_BUDGET.saturating_add(text.len().saturating_mul(BUDGET_PER_BYTE)),
        }
    }

    /// Returns the next node, with aliases resolved.
    pub(super) fn next_node(&mut self, sink: &mut DiagnosticSink) -> Result<YamlNode<'s>, StopReading> {
        self.pull_node(false, sink)
    }

    /// Skips one whole node and returns its recording, if it is a map or list.
    pub(super) fn capture_node(&mut self, sink: &mut DiagnosticSink) -> Result<CapturedNode, StopReading> {
        let id = match self.pull_node(true, sink)?.kind {
            YamlNodeKind::MapStart(Some(id)) | YamlNodeKind::SeqStart(Some(id)) => id,
            YamlNodeKind::Bad => return Ok(CapturedNode::Bad),
            _ => return Ok(CapturedNode::Other),
        };
        if self.is_finished(id) {
            self.jump_to_end(id, self.replays.len());
        }
        self.skip_rest(sink)?;
        Ok(CapturedNode::Collection(id))
    }

    /// Skips to the end of the innermost open map or list.
    pub(super) fn skip_rest(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let mut depth = 1;
        while depth > 0 {
            match self.next_node(sink)?.kind {
                YamlNodeKind::MapStart(id) | YamlNodeKind::SeqStart(id) => {
                    depth += 1;
                    if let Some(id) = id.filter(|id| self.is_finished(*id)) {
                        self.jump_to_end(id, self.replays.len());
                    }
                }
                YamlNodeKind::End => depth -= 1,
                // The parser never leaves anything open; if it did, this must not loop forever.
                YamlNodeKind::StreamEnd => return Err(StopReading),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn skip_node(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        match self.next_node(sink)?.kind {
            YamlNodeKind::MapStart(_) | YamlNodeKind::SeqStart(_) => self.skip_rest(sink),
            _ => Ok(()),
        }
    }

    /// Returns the number of nested active replays.
    pub(super) fn replay_depth(&self) -> usize {
        self.replays.len()
    }

    /// Whether replays above `depth` have events left.
    pub(super) fn has_replay_above(&mut self, depth: usize) -> bool {
        while self.replays.len() > depth {
            match self.replays.last() {
                Some(replay) if replay.next < replay.end => return true,
                _ => self.replays.pop(),
            };
        }
        false
    }

    /// Moves the replay at `depth`, which is inside the map or list, to its end.
    pub(super) fn jump_to_end(&mut self, id: DocumentNodeId, depth: usize) {
        self.replays.truncate(depth);
        if let Some(replay) = self.replays.last_mut() {
            replay.next = self.recorded[id.0 as usize].end;
        }
    }

    /// Returns the maps of a merge value: itself, or the members of a list. An `Err` is the location of
    /// anything else.
    pub(super) fn maps_to_merge(
        &mut self,
        id: DocumentNodeId,
        sink: &mut DiagnosticSink,
    ) -> Result<Vec<Result<DocumentNodeId, SourceSpan>>, StopReading> {
        let whole = &self.recorded[id.0 as usize];
        let (end, span) = (whole.end, whole.node.span);
        if matches!(whole.node.kind, YamlNodeKind::MapStart(_)) {
            return Ok(vec![Ok(id)]);
        }
        let mut members = Vec::new();
        let mut place = id.0 + 1;
        while place < end {
            let member = &self.recorded[place as usize];
            members.push(self.map_at(place).ok_or(member.node.span));
            place = member.end + 1;
        }
        self.spend_budget(members.len(), span, sink)?;
        Ok(members)
    }

    /// Replays the content of a map.
    pub(super) fn replay_inside(&mut self, id: DocumentNodeId) {
        self.replays.push(NodeReplay { next: id.0 + 1, end: self.recorded[id.0 as usize].end });
    }

    fn map_at(&self, place: u32) -> Option<DocumentNodeId> {
        match self.recorded[place as usize].node.kind {
            YamlNodeKind::MapStart(id) => id,
            YamlNodeKind::Alias(anchor) => {
                let target = DocumentNodeId(*self.anchors.get(&anchor)?);
                let is_map = matches!(self.recorded[target.0 as usize].node.kind, YamlNodeKind::MapStart(_));
                (is_map && self.is_finished(target)).then_some(target)
            }
            _ => None,
        }
    }

    fn is_finished(&self, id: DocumentNodeId) -> bool {
        self.recorded[id.0 as usize].end != UNFINISHED
    }

    fn pull_node(&mut self, record: bool, sink: &mut DiagnosticSink) -> Result<YamlNode<'s>, StopReading> {
        loop {
            let node = match self.next_replayed(sink)? {
                Some(node) => node,
                None => self.next_live(record, sink)?,
            };
            let YamlNodeKind::Alias(anchor) = node.kind else { return Ok(node) };
            match self.anchors.get(&anchor).map(|start| (*start, self.recorded[*start as usize].end)) {
                Some((start, end)) if end != UNFINISHED => {
                    self.replays.push(NodeReplay { next: start, end: end + 1 });
                }
                _ => {
                    sink.push(
                        SpecDiagnostic::new("recursive-alias", "this alias is inside its own anchor")
                            .with_span(node.span),
                    );
                    return Ok(YamlNode { kind: YamlNodeKind::Bad, span: node.span });
                }
            }
        }
    }

    fn next_replayed(&mut self, sink: &mut DiagnosticSink) -> Result<Option<YamlNode<'s>>, StopReading> {
        if !self.has_replay_above(0) {
            return Ok(None);
        }
        let Some(replay) = self.replays.last_mut() else { return Ok(None) };
        let node = self.recorded[replay.next as usize].node.clone();
        replay.next += 1;
        let cost = match &node.kind {
            YamlNodeKind::Scalar(scalar) => 1 + scalar.text.len() / BYTES_PER_COST,
            _ => 1,
        };
        self.spend_budget(cost, node.span, sink)?;
        Ok(Some(node))
    }

    fn spend_budget(
        &mut self,
        cost: usize,
        span: SourceSpan,
        sink: &mut DiagnosticSink,
    ) -> Result<(), StopReading> {
        if let Some(left) = self.budget.checked_sub(cost) {
            self.budget = left;
            return Ok(());
        }
        sink.push(
            SpecDiagnostic::new("too-many-aliases", "the aliases of this file expand to too much data")
                .with_span(span)
                .with_label(span, "repeated too often"),
        );
        Err(StopReading)
    }

    /// Returns the next node of the file itself. It is recorded if it is inside an anchor, or if `record` is
    /// set.
    fn next_live(&mut self, record: bool, sink: &mut DiagnosticSink) -> Result<YamlNode<'s>, StopReading> {
        let (event, span) = loop {
            match self.parser.next_event() {
                Some(Ok((Event::StreamStart, _))) => {}
                Some(Ok(spanned)) => break spanned,
                Some(Err(error)) => {
                    sink.push(syntax::syntax_diagnostic(&error, self.text, self.read_to));
                    return Err(StopReading);
                }
                None => return Ok(YamlNode { kind: YamlNodeKind::StreamEnd, span: SourceSpan::default() }),
            }
        };
        let anchor = event.anchor_id();
        check_tag(event.tag(), &span, sink);
        let range = span.byte_range().unwrap_or_default();
        self.read_to = range.end;
        let mut node = YamlNode { span: SourceSpan::new(range.start, range.end), kind: YamlNodeKind::Bad };
        node.kind = match event {
            Event::MappingStart(..) => YamlNodeKind::MapStart(None),
            Event::SequenceStart(..) => YamlNodeKind::SeqStart(None),
            Event::MappingEnd | Event::SequenceEnd => YamlNodeKind::End,
            Event::Scalar(text, style, _, tag) => {
                YamlNodeKind::Scalar(to_scalar(text, style, tag.as_deref(), node.span))
            }
            Event::Alias(anchor) => YamlNodeKind::Alias(anchor),
            Event::UnresolvedAlias(name) => {
                sink.push(unknown_alias_error(&name, node.span));
                YamlNodeKind::Bad
            }
            Event::DocumentStart(..) => YamlNodeKind::DocumentStart,
            Event::DocumentEnd => YamlNodeKind::DocumentEnd,
            _ => YamlNodeKind::StreamEnd,
        };
        if record || anchor.is_some() || !self.open.is_empty() {
            self.record_node(&mut node, anchor, sink)?;
        }
        Ok(node)
    }

    fn record_node(
        &mut self,
        node: &mut YamlNode<'s>,
        anchor: Option<usize>,
        sink: &mut DiagnosticSink,
    ) -> Result<(), StopReading> {
        let place = self.recorded.len() as u32;
        if self.recorded.len() >= MAX_RECORDED {
            sink.push(
                SpecDiagnostic::new("too-many-aliases", "too much of this file is inside anchors")
                    .with_span(node.span),
            );
            return Err(StopReading);
        }
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, place);
        }
        let mut end = place;
        match &mut node.kind {
            YamlNodeKind::MapStart(id) | YamlNodeKind::SeqStart(id) => {
                *id = Some(DocumentNodeId(place));
                self.open.push(place);
                end = UNFINISHED;
            }
            YamlNodeKind::End => {
                if let Some(start) = self.open.pop() {
                    self.recorded[start as usize].end = place;
                }
            }
            _ => {}
        }
        self.recorded.push(RecordedNode { node: node.clone(), end });
        Ok(())
    }
}

fn to_scalar<'s>(
    text: Cow<'s, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: SourceSpan,
) -> ScalarText<'s> {
    let plain = style == ScalarStyle::Plain;
    // The parser returns `~` for an empty value; the tag `!!str` makes it an empty text.
    let text = if plain && span.is_empty() { Cow::Borrowed("") } else { text };
    ScalarText { text, is_plain: plain && !tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str")) }
}

fn check_tag(tag: Option<&Tag>, span: &granit_parser::Span, sink: &mut DiagnosticSink) {
    let Some(tag) = tag.filter(|tag| tag.is_custom()) else { return };
    let tag_span = span.tag_span().as_ref().unwrap_or(span).byte_range().unwrap_or_default();
    sink.push(
        SpecDiagnostic::new("unknown-tag", format!("unknown tag `{}`", tag.original()))
            .with_span(SourceSpan::new(tag_span.start, tag_span.end))
            .with_help("put the value in quotes if it begins with `!`"),
    );
}

fn unknown_alias_error(name: &str, span: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new(
        "unknown-alias",
        format!("`*{name}` refers to an anchor that is not defined before it"),
    )
    .with_span(span)
    .with_help("put the value in quotes if it begins with `*`")
}
