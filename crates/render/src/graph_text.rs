//! Renders the graph as text: boxes and lines if they fit the width, otherwise a list by stages.

use crate::canvas::{DOWN, TextCanvas};
use crate::drawing::{DrawingNode, GraphDrawing};
use crate::escape::escape_terminal;
use crate::layout::{GraphLayout, LinkRoute, compute_layout};
use std::collections::BTreeMap;
use unicode_width::UnicodeWidthStr as _;

/// Maximum inner width of a box; labels are cut to fit.
const MAX_LABEL_WIDTH: usize = 40;
const BOX_HEIGHT: usize = 4;
/// Maximum number of boxes in a picture.
const MAX_BOXES: usize = 60;
/// Number of stages shown in a list; those between the first and the last ones are only counted.
const MAX_STAGES: usize = 200;

/// Renders the graph for a terminal of `width` columns. Ends with a line break.
pub fn render_text(drawing: &GraphDrawing, width: usize) -> String {
    render_picture(drawing, width).unwrap_or_else(|| render_list(drawing, width))
}

/// Returns `None` if the picture would be too wide or too tangled.
fn render_picture(drawing: &GraphDrawing, width: usize) -> Option<String> {
    if drawing.nodes.len() > MAX_BOXES {
        return None;
    }
    let boxes: Vec<TextBox> = drawing.nodes.iter().map(TextBox::new).collect();
    let laid = compute_layout(drawing, |node| boxes[node].width as f64, 1.0, 2.0);
    let columns = slot_columns(&laid, &boxes);
    let right = |layer: &Vec<TextSlot>| layer.iter().map(|place| place.left + place.width).max().unwrap_or(0);
    let needed = columns.iter().map(right).max().unwrap_or(0);
    let loose = laid.routes.iter().any(|way| way.slots.is_empty());
    if needed > width || loose {
        return None;
    }
    let mut canvas = TextCanvas::new(needed);
    for (layer, places) in columns.iter().enumerate() {
        let top = canvas.height();
        canvas.add_rows(BOX_HEIGHT);
        for (slot, place) in places.iter().enumerate() {
            match laid.layers[layer][slot].node {
                Some(node) => boxes[node].draw_on(&mut canvas, place.left, top),
                None => canvas.add_vertical(place.middle(), top..=top + BOX_HEIGHT - 1, usize::MAX - slot),
            }
        }
        if let Some(next) = columns.get(layer + 1) {
            LinkChannel::new(&laid, layer, places, next)?.draw_on(&mut canvas);
        }
    }
    Some(canvas.render_text())
}

/// A node with its border.
struct TextBox {
    title: String,
    detail: String,
    /// Including the border.
    width: usize,
    is_critical: bool,
}

impl TextBox {
    fn new(node: &DrawingNode) -> Self {
        let title = truncate_text(&escape_terminal(&node.render_title()), MAX_LABEL_WIDTH);
        let detail = truncate_text(&escape_terminal(&node.detail), MAX_LABEL_WIDTH);
        let width = title.width().max(detail.width()).max(5) + 4;
        Self { title, detail, width, is_critical: node.is_critical }
    }

    fn draw_on(&self, canvas: &mut TextCanvas, left: usize, top: usize) {
        let inner = self.width - 2;
        // The critical path is visible without colors too.
        let [corners, side, line] =
            if self.is_critical { ["┏┓┗┛", "┃", "━"] } else { ["┌┐└┘", "│", "─"] };
        let corners: Vec<char> = corners.chars().collect();
        let edge = |a: char, b: char| format!("{a}{}{b}", line.repeat(inner));
        canvas.write_text(left, top, &edge(corners[0], corners[1]), self.width);
        canvas.write_text(left, top + BOX_HEIGHT - 1, &edge(corners[2], corners[3]), self.width);
        for (row, text) in [&self.title, &self.detail].into_iter().enumerate() {
            canvas.write_text(left, top + 1 + row, side, 1);
            canvas.write_text(left + 2, top + 1 + row, text, inner - 2);
            canvas.write_text(left + self.width - 1, top + 1 + row, side, 1);
        }
    }
}

/// A slot in whole columns.
#[derive(Clone, Copy, Debug)]
struct TextSlot {
    left: usize,
    width: usize,
    /// Border character where a line leaves; empty for a line that passes.
    border: &'static str,
}

impl TextSlot {
    fn middle(&self) -> usize {
        self.left + (self.width - 1) / 2
    }

    /// Returns the columns where a line may arrive, the middle first. A passing line has only one.
    fn arrival_columns(&self) -> Vec<usize> {
        let inner = (self.left + 1).min(self.middle())
            ..=(self.left + self.width).saturating_sub(2).max(self.middle());
        let mut columns: Vec<usize> = inner.collect();
        columns.sort_by_key(|column| column.abs_diff(self.middle()));
        columns
    }
}

/// Rounds all slots to whole columns without making them overlap.
fn slot_columns(laid: &GraphLayout, boxes: &[TextBox]) -> Vec<Vec<TextSlot>> {
    let layer = |slots: &Vec<crate::layout::LayoutSlot>| {
        let mut free = 0;
        let place = |slot: &crate::layout::LayoutSlot| {
            let width = slot.node.map_or(1, |node| boxes[node].width);
            let tee = match slot.node {
                None => "",
                Some(node) if boxes[node].is_critical => "┯",
                Some(_) => "┬",
            };
            let preferred_position = (slot.centre - width as f64 / 2.0).round().max(0.0) as usize;
            let left = preferred_position.max(free);
            free = left + width + 2;
            TextSlot { left, width, border: tee }
        };
        slots.iter().map(place).collect()
    };
    laid.layers.iter().map(layer).collect()
}

/// The lines between two layers. Sources with the same targets share one horizontal line, a *bus*, so connected
/// lines always mean that each source leads to each target.
struct LinkChannel {
    buses: Vec<LinkBus>,
    /// Number of rows for horizontal lines.
    rows: usize,
}

struct LinkBus {
    /// Columns where lines come from above, and the border character there.
    sources: Vec<(usize, &'static str)>,
    /// Columns where they continue below, and whether an arrow ends there.
    targets: Vec<(usize, bool)>,
    /// `None` for a vertical line.
    row: Option<usize>,
}

impl LinkChannel {
    fn new(laid: &GraphLayout, layer: usize, above: &[TextSlot], below: &[TextSlot]) -> Option<Self> {
        let mut targets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (_, from, to) in laid.routes.iter().flat_map(LinkRoute::steps).filter(|step| step.0 == layer) {
            targets.entry(from).or_default().push(to);
        }
        let mut groups: BTreeMap<Vec<usize>, Vec<(usize, &str)>> = BTreeMap::new();
        for (from, mut to) in targets {
            to.sort_unstable();
            to.dedup();
            groups.entry(to).or_default().push((above[from].middle(), above[from].border));
        }
        let every_source: Vec<usize> = groups.values().flatten().map(|source| source.0).collect();
        let mut taken: Vec<usize> = Vec::new();
        let mut buses = Vec::new();
        for (to, sources) in groups {
            let mut landings = Vec::new();
            for target in to {
                let free = |column: &usize| {
                    let own = sources.iter().any(|source| source.0 == *column);
                    let foreign = every_source.contains(column) && !own;
                    !taken.contains(column) && !foreign
                };
                let mut landings_there = below[target].arrival_columns();
                if let [(source, _)] = sources[..] {
                    // A vertical line if possible.
                    landings_there.sort_by_key(|&column| column != source);
                }
                let column = landings_there.into_iter().find(free)?;
                taken.push(column);
                landings.push((column, laid.layers[layer + 1][target].node.is_some()));
            }
            buses.push(LinkBus { sources, targets: landings, row: None });
        }
        let rows = assign_rows(&mut buses);
        Some(Self { buses, rows })
    }

    fn draw_on(&self, canvas: &mut TextCanvas) {
        let top = canvas.height();
        canvas.add_rows(self.rows + 1);
        let bottom = top + self.rows;
        for (net, bus) in self.buses.iter().enumerate() {
            for &(source, tee) in &bus.sources {
                canvas.add_vertical(source, top - 1..=bus.row.map_or(bottom, |row| top + row), net);
                canvas.write_text(source, top - 1, tee, 1);
            }
            if let (Some(row), Some((first, last))) = (bus.row, bus.column_span()) {
                canvas.add_horizontal(top + row, first..=last, net);
            }
            for &(target, ends) in &bus.targets {
                let start = bus.row.map_or(top, |row| top + row);
                canvas.add_vertical(target, start..=bottom, net);
                if ends {
                    canvas.write_text(target, bottom, "▼", 1);
                } else {
                    canvas.add_line(target, bottom, net, DOWN);
                }
            }
        }
    }
}

impl LinkBus {
    fn column_span(&self) -> Option<(usize, usize)> {
        let sources = self.sources.iter().map(|source| source.0);
        let columns = || sources.clone().chain(self.targets.iter().map(|target| target.0));
        Some((columns().min()?, columns().max()?))
    }

    fn is_straight(&self) -> bool {
        matches!((self.sources.as_slice(), self.targets.as_slice()), (&[(from, _)], &[(to, _)]) if from == to)
    }
}

/// Assigns a row to every bus that is not vertical; buses that do not overlap share rows.
fn assign_rows(buses: &mut [LinkBus]) -> usize {
    let mut rows: Vec<Vec<(usize, usize)>> = Vec::new();
    for bus in buses.iter_mut().filter(|bus| !bus.is_straight()) {
        let Some((first, last)) = bus.column_span() else { continue };
        let apart =
            |row: &Vec<(usize, usize)>| row.iter().all(|&(from, to)| last + 1 < from || to + 1 < first);
        let row = rows.iter().position(apart).unwrap_or_else(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        rows[row].push((first, last));
        bus.row = Some(row);
    }
    rows.len()
}

/// Renders one line per node, by stages, with its dependencies.
fn render_list(drawing: &GraphDrawing, width: usize) -> String {
    let mut waits: Vec<Vec<String>> = vec![Vec::new(); drawing.nodes.len()];
    for link in &drawing.links {
        let label = if link.label.is_empty() { String::new() } else { format!(" ({})", link.label) };
        waits[link.to].push(format!("{}{label}", escape_terminal(&drawing.nodes[link.from].label)));
    }
    let mut out = String::new();
    let stages = drawing.stages.len();
    for (stage, nodes) in drawing.stages.iter().enumerate() {
        if stages > MAX_STAGES && stage == MAX_STAGES - 1 {
            let more = stages - MAX_STAGES;
            push_line(&mut out, &format!("⋮ {more} more stages"), width);
        }
        if stages > MAX_STAGES && (MAX_STAGES - 1..stages - 1).contains(&stage) {
            continue;
        }
        let heading = drawing.headings.get(stage).map_or("", String::as_str);
        push_line(&mut out, &escape_terminal(heading), width);
        for &node in nodes {
            push_line(&mut out, &render_list_line(&drawing.nodes[node], &waits[node]), width);
        }
    }
    out
}

fn render_list_line(node: &DrawingNode, waits: &[String]) -> String {
    let mark = if node.is_critical { '*' } else { ' ' };
    let detail =
        if node.detail.is_empty() { String::new() } else { format!("  {}", escape_terminal(&node.detail)) };
    let after = if waits.is_empty() { String::new() } else { format!("  ← {}", waits.join(", ")) };
    format!(" {mark} {}{detail}{after}", escape_terminal(&node.render_title()))
}

fn push_line(out: &mut String, line: &str, width: usize) {
    out.push_str(&truncate_text(line, width));
    out.push('\n');
}

/// Shortens text to `width` columns and marks where it was cut.
fn truncate_text(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        if short.width() + unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) + 1 > width {
            break;
        }
        short.push(c);
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests;
