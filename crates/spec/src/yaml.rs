//! YAML as events: which scalar is a key and which a value, merge keys, limits on nesting, one document per file.

mod nodes;
mod syntax;

use crate::diagnostic::{Diagnostic, Sink};
use crate::event::{Event, Events, Kind, NodeId, Stop};
use crate::source::Span;
use nodes::{Captured, Node, NodeKind, Nodes};

/// A spec needs four levels.
const MAX_DEPTH: usize = 64;

/// The events of a YAML text.
pub(crate) struct Yaml<'s> {
    nodes: Nodes<'s>,
    /// The open maps and lists, from the outside in.
    levels: Vec<Level>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    BeforeDocument,
    InDocument,
    AfterRoot,
}

struct Level {
    is_map: bool,
    /// In a map: a key comes next (or the end).
    at_key: bool,
    /// Where it is recorded, if it is.
    id: Option<NodeId>,
    /// Replays that were under way when it began.
    replay_depth: usize,
    /// Maps that are merged in once the map's own keys have been told, because those win.
    merges: Vec<NodeId>,
    /// The map's own keys have been told.
    own_end: Option<Span>,
}

impl<'s> Yaml<'s> {
    pub(crate) fn new(text: &'s str) -> Self {
        Self { nodes: Nodes::new(text), levels: Vec::new(), stage: Stage::BeforeDocument }
    }

    /// Before and after the root node.
    fn next_outside(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        loop {
            let node = self.nodes.next(sink)?;
            match (node.kind, self.stage) {
                (NodeKind::DocumentStart, Stage::BeforeDocument) => self.stage = Stage::InDocument,
                (NodeKind::DocumentStart, _) => {
                    sink.push(
                        Diagnostic::new("several-documents", "the file holds more than one document")
                            .at(node.span)
                            .help("put each workflow in a file of its own"),
                    );
                    return Err(Stop);
                }
                (NodeKind::DocumentEnd, _) => {}
                (NodeKind::StreamEnd, _) => return Ok(Event { kind: Kind::End, span: node.span }),
                (kind, _) => {
                    self.stage = Stage::AfterRoot;
                    return self.value(Node { kind, span: node.span }, sink);
                }
            }
        }
    }

    fn value(&mut self, node: Node<'s>, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        if let Some(level) = self.levels.last_mut() {
            level.at_key = level.is_map;
        }
        let kind = match node.kind {
            NodeKind::MapStart(id) => {
                self.enter(true, id, node.span, sink)?;
                Kind::MapStart(id)
            }
            NodeKind::SeqStart(id) => {
                self.enter(false, id, node.span, sink)?;
                Kind::SeqStart(id)
            }
            NodeKind::Scalar(scalar) => Kind::Scalar(scalar),
            NodeKind::End => {
                self.levels.pop();
                Kind::SeqEnd
            }
            NodeKind::Alias(_) | NodeKind::Bad => Kind::Bad,
            NodeKind::DocumentStart | NodeKind::DocumentEnd | NodeKind::StreamEnd => Kind::End,
        };
        Ok(Event { kind, span: node.span })
    }

    fn enter(&mut self, is_map: bool, id: Option<NodeId>, span: Span, sink: &mut Sink) -> Result<(), Stop> {
        if self.levels.len() >= MAX_DEPTH {
            sink.push(Diagnostic::new("too-deep", format!("nested more than {MAX_DEPTH} deep")).at(span));
            return Err(Stop);
        }
        let replay_depth = self.nodes.replay_depth();
        self.levels.push(Level {
            is_map,
            at_key: is_map,
            id,
            replay_depth,
            merges: Vec::new(),
            own_end: None,
        });
        Ok(())
    }

    /// The next key of the innermost map, or its end.
    fn key(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Err(Stop) };
            if let Some(span) = level.own_end
                && !self.nodes.has_replay_above(level.replay_depth)
            {
                let Some(id) = level.merges.pop() else {
                    self.levels.pop();
                    return Ok(Event { kind: Kind::MapEnd, span });
                };
                self.nodes.replay_inside(id);
                continue;
            }
            let merged = level.own_end.is_some();
            let node = self.nodes.next(sink)?;
            match node.kind {
                NodeKind::End => level.own_end = Some(node.span),
                NodeKind::Scalar(scalar) if scalar.plain && scalar.text == "<<" => {
                    self.merge(node.span, sink)?;
                }
                NodeKind::Scalar(scalar) => {
                    level.at_key = false;
                    return Ok(Event { kind: Kind::Key { text: scalar.text, merged }, span: node.span });
                }
                NodeKind::MapStart(_) | NodeKind::SeqStart(_) => {
                    sink.push(Diagnostic::new("complex-key", "a key must be a string").at(node.span));
                    self.nodes.skip_rest(sink)?;
                    self.nodes.skip_node(sink)?;
                }
                NodeKind::Alias(_) | NodeKind::Bad => self.nodes.skip_node(sink)?,
                NodeKind::DocumentStart | NodeKind::DocumentEnd | NodeKind::StreamEnd => return Err(Stop),
            }
        }
    }

    /// Notes what stands behind a `<<`.
    fn merge(&mut self, span: Span, sink: &mut Sink) -> Result<(), Stop> {
        let id = match self.nodes.capture(sink)? {
            Captured::Collection(id) => id,
            Captured::Bad => return Ok(()),
            Captured::Other => {
                sink.push(not_a_map(span));
                return Ok(());
            }
        };
        // Taken from the end, so the first map named comes first and wins.
        for member in self.nodes.maps_to_merge(id, sink)?.into_iter().rev() {
            match (member, self.levels.last_mut()) {
                (Ok(map), Some(level)) => level.merges.push(map),
                (Ok(_), None) => {}
                (Err(span), _) => sink.push(not_a_map(span)),
            }
        }
        Ok(())
    }
}

impl<'s> Events<'s> for Yaml<'s> {
    fn next(&mut self, sink: &mut Sink) -> Result<Event<'s>, Stop> {
        match self.levels.last() {
            None => self.next_outside(sink),
            Some(level) if level.at_key => self.key(sink),
            Some(_) => {
                let node = self.nodes.next(sink)?;
                self.value(node, sink)
            }
        }
    }

    fn leave(&mut self, sink: &mut Sink) -> Result<(), Stop> {
        let depth = self.levels.len();
        while self.levels.len() >= depth {
            match self.levels.last() {
                // Opened by a replay: its end is known, no need to look at what stands in between.
                Some(Level { id: Some(id), replay_depth: replays @ 1.., own_end: None, .. }) => {
                    self.nodes.jump_to_end(*id, *replays);
                    self.nodes.next(sink)?;
                    self.levels.pop();
                }
                _ => {
                    self.next(sink)?;
                }
            }
        }
        Ok(())
    }
}

fn not_a_map(span: Span) -> Diagnostic {
    Diagnostic::new("merge-value", "`<<` merges maps, and this is none")
        .at(span)
        .help("write `<<: *anchor` or `<<: [*one, *two]`")
}
