//! Parses YAML into events: distinguishes keys and values, merges keys, limits nesting, and allows one document
//! per file.

mod nodes;
mod syntax;

use crate::diagnostic::{DiagnosticSink, SpecDiagnostic};
use crate::event::{DocumentEvent, DocumentEventKind, DocumentEventStream, DocumentNodeId, StopReading};
use crate::source::SourceSpan;
use nodes::{CapturedNode, YamlNode, YamlNodeKind, YamlNodes};

/// A spec needs four levels.
const MAX_DEPTH: usize = 64;

/// The events of a YAML text.
pub(crate) struct YamlReader<'s> {
    nodes: YamlNodes<'s>,
    /// The open maps and lists, outermost first.
    levels: Vec<YamlLevel>,
    stage: YamlStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum YamlStage {
    BeforeDocument,
    InDocument,
    AfterRoot,
}

struct YamlLevel {
    is_map: bool,
    /// In a map: a key (or the end) comes next.
    at_key: bool,
    /// Its recording, if there is one.
    id: Option<DocumentNodeId>,
    /// The number of active replays when it began.
    replay_depth: usize,
    /// Maps to merge after the map's own keys, because those take precedence.
    merges: Vec<DocumentNodeId>,
    /// Set when all own keys of the map have been returned.
    own_end: Option<SourceSpan>,
}

impl<'s> YamlReader<'s> {
    pub(crate) fn new(text: &'s str) -> Self {
        Self { nodes: YamlNodes::new(text), levels: Vec::new(), stage: YamlStage::BeforeDocument }
    }

    /// Returns the next event before or after the root node.
    fn next_outside(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        loop {
            let node = self.nodes.next_node(sink)?;
            match (node.kind, self.stage) {
                (YamlNodeKind::DocumentStart, YamlStage::BeforeDocument) => {
                    self.stage = YamlStage::InDocument;
                }
                (YamlNodeKind::DocumentStart, _) => {
                    sink.push(
                        SpecDiagnostic::new("several-documents", "the file contains more than one document")
                            .with_span(node.span)
                            .with_help("put each workflow in a separate file"),
                    );
                    return Err(StopReading);
                }
                (YamlNodeKind::DocumentEnd, _) => {}
                (YamlNodeKind::StreamEnd, _) => {
                    return Ok(DocumentEvent { kind: DocumentEventKind::End, span: node.span });
                }
                (kind, _) => {
                    self.stage = YamlStage::AfterRoot;
                    return self.enter_value(YamlNode { kind, span: node.span }, sink);
                }
            }
        }
    }

    fn enter_value(
        &mut self,
        node: YamlNode<'s>,
        sink: &mut DiagnosticSink,
    ) -> Result<DocumentEvent<'s>, StopReading> {
        if let Some(level) = self.levels.last_mut() {
            level.at_key = level.is_map;
        }
        let kind = match node.kind {
            YamlNodeKind::MapStart(id) => {
                self.enter_collection(true, id, node.span, sink)?;
                DocumentEventKind::MapStart(id)
            }
            YamlNodeKind::SeqStart(id) => {
                self.enter_collection(false, id, node.span, sink)?;
                DocumentEventKind::SeqStart(id)
            }
            YamlNodeKind::Scalar(scalar) => DocumentEventKind::Scalar(scalar),
            YamlNodeKind::End => {
                self.levels.pop();
                DocumentEventKind::SeqEnd
            }
            YamlNodeKind::Alias(_) | YamlNodeKind::Bad => DocumentEventKind::Bad,
            YamlNodeKind::DocumentStart | YamlNodeKind::DocumentEnd | YamlNodeKind::StreamEnd => {
                DocumentEventKind::End
            }
        };
        Ok(DocumentEvent { kind, span: node.span })
    }

    fn enter_collection(
        &mut self,
        is_map: bool,
        id: Option<DocumentNodeId>,
        span: SourceSpan,
        sink: &mut DiagnosticSink,
    ) -> Result<(), StopReading> {
        if self.levels.len() >= MAX_DEPTH {
            sink.push(
                SpecDiagnostic::new("too-deep", format!("nested more than {MAX_DEPTH} deep")).with_span(span),
            );
            return Err(StopReading);
        }
        let replay_depth = self.nodes.replay_depth();
        self.levels.push(YamlLevel {
            is_map,
            at_key: is_map,
            id,
            replay_depth,
            merges: Vec::new(),
            own_end: None,
        });
        Ok(())
    }

    /// Returns the next key of the innermost map, or its end.
    fn next_key(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Err(StopReading) };
            if let Some(span) = level.own_end
                && !self.nodes.has_replay_above(level.replay_depth)
            {
                let Some(id) = level.merges.pop() else {
                    self.levels.pop();
                    return Ok(DocumentEvent { kind: DocumentEventKind::MapEnd, span });
                };
                self.nodes.replay_inside(id);
                continue;
            }
            let merged = level.own_end.is_some();
            let node = self.nodes.next_node(sink)?;
            match node.kind {
                YamlNodeKind::End => level.own_end = Some(node.span),
                YamlNodeKind::Scalar(scalar) if scalar.is_plain && scalar.text == "<<" => {
                    self.read_merge(node.span, sink)?;
                }
                YamlNodeKind::Scalar(scalar) => {
                    level.at_key = false;
                    return Ok(DocumentEvent {
                        kind: DocumentEventKind::Key { text: scalar.text, merged },
                        span: node.span,
                    });
                }
                YamlNodeKind::MapStart(_) | YamlNodeKind::SeqStart(_) => {
                    sink.push(
                        SpecDiagnostic::new("complex-key", "a key must be a string").with_span(node.span),
                    );
                    self.nodes.skip_rest(sink)?;
                    self.nodes.skip_node(sink)?;
                }
                YamlNodeKind::Alias(_) | YamlNodeKind::Bad => self.nodes.skip_node(sink)?,
                YamlNodeKind::DocumentStart | YamlNodeKind::DocumentEnd | YamlNodeKind::StreamEnd => {
                    return Err(StopReading);
                }
            }
        }
    }

    /// Records the value of a `<<` key.
    fn read_merge(&mut self, span: SourceSpan, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let id = match self.nodes.capture_node(sink)? {
            CapturedNode::Collection(id) => id,
            CapturedNode::Bad => return Ok(()),
            CapturedNode::Other => {
                sink.push(not_a_map_error(span));
                return Ok(());
            }
        };
        // Taken from the end, so the first map listed comes first and takes precedence.
        for member in self.nodes.maps_to_merge(id, sink)?.into_iter().rev() {
            match (member, self.levels.last_mut()) {
                (Ok(map), Some(level)) => level.merges.push(map),
                (Ok(_), None) => {}
                (Err(span), _) => sink.push(not_a_map_error(span)),
            }
        }
        Ok(())
    }
}

impl<'s> DocumentEventStream<'s> for YamlReader<'s> {
    fn next_event(&mut self, sink: &mut DiagnosticSink) -> Result<DocumentEvent<'s>, StopReading> {
        match self.levels.last() {
            None => self.next_outside(sink),
            Some(level) if level.at_key => self.next_key(sink),
            Some(_) => {
                let node = self.nodes.next_node(sink)?;
                self.enter_value(node, sink)
            }
        }
    }

    fn leave_collection(&mut self, sink: &mut DiagnosticSink) -> Result<(), StopReading> {
        let depth = self.levels.len();
        while self.levels.len() >= depth {
            match self.levels.last() {
                // Opened by a replay: its end is known, so its content need not be scanned.
                Some(YamlLevel { id: Some(id), replay_depth: replays @ 1.., own_end: None, .. }) => {
                    self.nodes.jump_to_end(*id, *replays);
                    self.nodes.next_node(sink)?;
                    self.levels.pop();
                }
                _ => {
                    self.next_event(sink)?;
                }
            }
        }
        Ok(())
    }
}

fn not_a_map_error(span: SourceSpan) -> SpecDiagnostic {
    SpecDiagnostic::new("merge-value", "`<<` merges maps, but this is not a map")
        .with_span(span)
        .with_help("write `<<: *anchor` or `<<: [*one, *two]`")
}
