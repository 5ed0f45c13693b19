//! Renders the graph as a self-contained SVG: stages from left to right, with light and dark colors by the
//! preference of the reader.

use crate::drawing::{DrawingLink, DrawingNode, GraphDrawing};
use crate::escape::escape_xml;
use crate::layout::{GraphLayout, compute_layout};
use unicode_width::UnicodeWidthStr as _;

const NODE_HEIGHT: f64 = 46.0;
const GAP: f64 = 18.0;
/// Distance between two stages; links need room for curves.
const STAGE_GAP: f64 = 84.0;
const MARGIN: f64 = 24.0;
const HEADING: f64 = 34.0;
/// Average width of a character of a label; labels are cut to fit their boxes.
const LETTER_WIDTH: f64 = 8.0;
const MAX_LABEL_LENGTH: usize = 34;
const MIN_NODE_WIDTH: f64 = 110.0;

const STYLE: &str = "
svg{--bg:#fff;--ink:#1f2328;--soft:#656d76;--line:#afb8c1;--box:#f6f8fa;--edge:#d0d7de;--hot:#bc4c00;
--active:#ddf4ff;--active-edge:#54aeff;--good:#dafbe1;--good-edge:#4ac26b;--bad:#ffebe9;--bad-edge:#ff8182;background:var(--bg)}
@media(prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6edf3;--soft:#8d96a0;--line:#57606a;--box:#161b22;--edge:#30363d;
--hot:#f0883e;--active:#0c2d6b;--active-edge:#388bfd;--good:#0f3d20;--good-edge:#2ea043;--bad:#5d0f12;--bad-edge:#f85149}}
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--ink)}
.label{font-size:13px;font-weight:600}.detail{font-size:11px;opacity:.72}.heading,.how{font-size:11px;fill:var(--soft)}
.heading{text-anchor:middle;letter-spacing:.03em}.how{font-size:10px;text-anchor:middle}
.count{font-size:11px;font-weight:600;text-anchor:end;fill:var(--soft)}
.box,.card{fill:var(--box);stroke:var(--edge);stroke-width:1.2}
.active .box,.active .card{fill:var(--active);stroke:var(--active-edge)}
.good .box,.good .card{fill:var(--good);stroke:var(--good-edge)}
.bad .box,.bad .card{fill:var(--bad);stroke:var(--bad-edge)}
.quiet .box,.quiet .card{fill:none;stroke-dasharray:4 3}.quiet .label{fill:var(--soft)}
.critical .box{stroke:var(--hot);stroke-width:2}
.link{fill:none;stroke:var(--line);stroke-width:1.4}.hot{stroke:var(--hot);stroke-width:2}
.halo{fill:var(--bg)}.tip{fill:var(--line)}.hot-tip{fill:var(--hot)}
";

/// Renders a complete SVG document.
pub fn render_svg(drawing: &GraphDrawing) -> String {
    let sheet = SvgSheet::new(drawing);
    let (width, height) = (sheet.width(), sheet.height());
    let mut out = String::new();
    put!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"workflow graph\">\n<style>{STYLE}</style>\n<defs>\
         <marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"tip\" d=\"M0 .8L7.5 4L0 7.2z\"/></marker>\
         <marker id=\"hot-tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" \
         markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"hot-tip\" d=\"M0 .8L7.5 4L0 7.2z\"/></marker></defs>\n"
    );
    // Normal links first, so that the critical path is drawn above them.
    let mut order: Vec<usize> = (0..drawing.links.len()).collect();
    order.sort_by_key(|&link| drawing.links[link].is_critical);
    for &link in &order {
        sheet.render_link(&mut out, link);
    }
    for (layer, slots) in sheet.layout.layers.iter().enumerate() {
        sheet.render_heading(&mut out, layer);
        for slot in slots {
            if let Some(node) = slot.node {
                sheet.render_node(&mut out, node, sheet.layer_starts[layer], slot.centre);
            }
        }
    }
    for &link in &order {
        sheet.render_link_label(&mut out, link);
    }
    out.push_str("</svg>\n");
    out
}

struct SvgSheet<'d> {
    drawing: &'d GraphDrawing,
    layout: GraphLayout,
    /// The start of each layer, and the width of its boxes.
    layer_starts: Vec<f64>,
    widths: Vec<f64>,
}

impl<'d> SvgSheet<'d> {
    fn new(drawing: &'d GraphDrawing) -> Self {
        let layout = compute_layout(drawing, |_| NODE_HEIGHT, 6.0, GAP);
        let widest = |nodes: &Vec<usize>| {
            let widths = nodes.iter().map(|&node| node_width(&drawing.nodes[node]));
            widths.fold(MIN_NODE_WIDTH, f64::max)
        };
        let widths: Vec<f64> = drawing.stages.iter().map(widest).collect();
        let mut left = MARGIN;
        let mut layer_starts = Vec::new();
        for width in &widths {
            layer_starts.push(left);
            left += width + STAGE_GAP;
        }
        Self { drawing, layout, layer_starts, widths }
    }

    fn width(&self) -> f64 {
        let last = self.layer_starts.last().zip(self.widths.last());
        last.map_or(2.0 * MARGIN, |(left, width)| left + width + MARGIN + 6.0)
    }

    fn height(&self) -> f64 {
        self.layout.extent + HEADING + 2.0 * MARGIN
    }

    fn render_heading(&self, out: &mut String, layer: usize) {
        let x = self.layer_starts[layer] + self.widths[layer] / 2.0;
        let text = self.drawing.headings.get(layer).map_or("", String::as_str);
        put_line!(out, "<text class=\"heading\" x=\"{x:.1}\" y=\"{MARGIN:.1}\">{}</text>", escape_xml(text));
    }

    fn render_node(&self, out: &mut String, number: usize, left: f64, centre: f64) {
        let node = &self.drawing.nodes[number];
        let (top, width) = (y_position(centre) - NODE_HEIGHT / 2.0, self.widths[self.layer_at(left)]);
        let critical = if node.is_critical { " critical" } else { "" };
        put!(
            out,
            "<g class=\"{}{critical}\"><title>{}</title>",
            node.tone.class(),
            escape_xml(&render_tooltip(node))
        );
        let card = |out: &mut String, class: &str, shift: f64| {
            let (x, y) = (left + shift, top - shift);
            put!(
                out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{NODE_HEIGHT}\" rx=\"7\"/>"
            );
        };
        if node.jobs > 1 {
            card(out, "card", 6.0);
            card(out, "card", 3.0);
        }
        card(out, "box", 0.0);
        let (text, baseline) = (left + 12.0, if node.detail.is_empty() { top + 28.0 } else { top + 20.0 });
        let label = escape_xml(&shorten_label(&node.label));
        put!(out, "<text class=\"label\" x=\"{text:.1}\" y=\"{baseline:.1}\">{label}</text>");
        if node.jobs > 1 {
            let right = left + width - 12.0;
            put!(out, "<text class=\"count\" x=\"{right:.1}\" y=\"{baseline:.1}\">× {}</text>", node.jobs);
        }
        let under = top + 36.0;
        put_line!(
            out,
            "<text class=\"detail\" x=\"{text:.1}\" y=\"{under:.1}\">{}</text></g>",
            escape_xml(&node.detail)
        );
    }

    fn layer_at(&self, left: f64) -> usize {
        self.layer_starts.iter().position(|&start| start >= left).unwrap_or(0)
    }

    /// Returns a curve through all points of a link, horizontal at each.
    fn render_link(&self, out: &mut String, number: usize) {
        let link = &self.drawing.links[number];
        let Some(mut points) = self.link_points(number) else {
            return self.render_link_within_stage(out, link);
        };
        let (x, y) = points.remove(0);
        let mut path = format!("M{x:.1} {y:.1}");
        let mut at = (x, y);
        for (x, y) in points {
            let bend = (x - at.0) / 2.0;
            put!(path, "C{:.1} {:.1} {:.1} {y:.1} {x:.1} {y:.1}", at.0 + bend, at.1, x - bend);
            at = (x, y);
        }
        render_path(out, link, &path);
    }

    /// Jobs of a folded stage may depend on others of it: returns an arc from the right edge of one to that of
    /// the other.
    fn render_link_within_stage(&self, out: &mut String, link: &DrawingLink) {
        let (Some((from, start)), Some((to, end))) =
            (self.node_position(link.from), self.node_position(link.to))
        else {
            return;
        };
        let (a, b) = (self.layer_starts[from] + self.widths[from], self.layer_starts[to] + self.widths[to]);
        let reach = a.max(b) + STAGE_GAP / 2.0;
        let path = format!("M{a:.1} {start:.1}C{reach:.1} {start:.1} {reach:.1} {end:.1} {b:.1} {end:.1}");
        render_path(out, link, &path);
    }

    /// Returns the points where a link starts, passes and ends.
    fn link_points(&self, number: usize) -> Option<Vec<(f64, f64)>> {
        let way = &self.layout.routes[number];
        let mut points = Vec::new();
        let last = way.slots.len().checked_sub(1)?;
        for (i, &slot) in way.slots.iter().enumerate() {
            let layer = way.first_layer + i;
            let y = y_position(self.layout.layers[layer][slot].centre);
            let (left, right) = (self.layer_starts[layer], self.layer_starts[layer] + self.widths[layer]);
            if i > 0 {
                points.push((if i == last { left - 2.0 } else { left }, y));
            }
            if i < last {
                let cards = if i == 0 && self.drawing.nodes[self.drawing.links[number].from].jobs > 1 {
                    6.0
                } else {
                    0.0
                };
                points.push((right + cards, y));
            }
        }
        Some(points)
    }

    fn node_position(&self, node: usize) -> Option<(usize, f64)> {
        let layers = self.layout.layers.iter().enumerate();
        let mut slots = layers.flat_map(|(layer, slots)| slots.iter().map(move |slot| (layer, slot)));
        slots.find(|(_, slot)| slot.node == Some(node)).map(|(layer, slot)| (layer, y_position(slot.centre)))
    }

    /// Writes `all` or `1:1` before the last curve, on a background.
    fn render_link_label(&self, out: &mut String, number: usize) {
        let label = &self.drawing.links[number].label;
        let Some(points) = self.link_points(number).filter(|_| !label.is_empty()) else { return };
        let [.., before, end] = points.as_slice() else { return };
        let (x, y) = (f64::midpoint(before.0, end.0), f64::midpoint(before.1, end.1));
        let half = label.width() as f64 * 3.0 + 4.0;
        put_line!(
            out,
            "<rect class=\"halo\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"13\" rx=\"6\"/>\
             <text class=\"how\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            x - half,
            y - 6.5,
            2.0 * half,
            y + 3.5,
            escape_xml(label)
        );
    }
}

fn render_path(out: &mut String, link: &DrawingLink, path: &str) {
    let (class, tip) = if link.is_critical { ("link hot", "hot-tip") } else { ("link", "tip") };
    put_line!(out, "<path class=\"{class}\" marker-end=\"url(#{tip})\" d=\"{path}\"/>");
}

/// Returns the vertical position, below the headings.
fn y_position(centre: f64) -> f64 {
    centre + HEADING + MARGIN
}

fn node_width(node: &DrawingNode) -> f64 {
    let count =
        if node.jobs > 1 { format!("× {}", node.jobs).width() as f64 * LETTER_WIDTH + 14.0 } else { 0.0 };
    let label = shorten_label(&node.label).width() as f64 * LETTER_WIDTH + count;
    let detail = node.detail.width() as f64 * 6.0;
    label.max(detail) + 24.0
}

/// Shortens a long name in the middle: its beginning identifies the group, its end the values.
fn shorten_label(label: &str) -> String {
    let letters: Vec<char> = label.chars().collect();
    if letters.len() <= MAX_LABEL_LENGTH {
        return label.to_owned();
    }
    let (head, tail) = (MAX_LABEL_LENGTH - 13, 12);
    let start: String = letters[..head].iter().collect();
    let end: String = letters[letters.len() - tail..].iter().collect();
    format!("{start}…{end}")
}

fn render_tooltip(node: &DrawingNode) -> String {
    let detail = if node.detail.is_empty() { String::new() } else { format!(" ({})", node.detail) };
    format!("{}{detail}", node.render_title())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing() -> GraphDrawing {
        let node = |label: &str, jobs, is_critical| DrawingNode {
            label: label.to_owned(),
            jobs,
            detail: "4 cpus".to_owned(),
            is_critical,
            ..DrawingNode::default()
        };
        let link = |from, to, label: &str| {
            let is_critical = [(0, 1), (1, 3)].contains(&(from, to));
            DrawingLink { from, to, label: label.to_owned(), is_critical }
        };
        GraphDrawing {
            stages: vec![vec![0], vec![1, 2], vec![3]],
            headings: ["one", "two", "three"].map(str::to_owned).to_vec(),
            nodes: vec![
                node("a<b>&\"", 1, true),
                node("b", 12, true),
                node("c", 1, false),
                node("d", 1, true),
            ],
            links: vec![link(0, 1, "all"), link(0, 2, ""), link(1, 3, "all"), link(0, 3, ""), link(2, 1, "")],
        }
    }

    #[test]
    fn svg_has_all_elements_and_escaped_names() {
        let picture = render_svg(&drawing());
        assert_eq!(picture.matches("class=\"box\"").count(), 4);
        assert_eq!(picture.matches("<path class=\"link").count(), 5);
        assert_eq!(picture.matches("class=\"link hot\"").count(), 2, "the critical path");
        assert_eq!(picture.matches("class=\"card\"").count(), 2, "a group is drawn as a stack");
        assert!(picture.contains("a&lt;b&gt;&amp;&quot;") && !picture.contains("a<b>"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn svg_tags_are_closed() {
        let picture = render_svg(&drawing());
        for tag in ["svg", "g", "text", "title", "style", "marker", "defs"] {
            let opened =
                picture.matches(&format!("<{tag} ")).count() + picture.matches(&format!("<{tag}>")).count();
            assert_eq!(opened, picture.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        let short = shorten_label(&format!("start_{}_seed_42", "x".repeat(60)));
        assert!(short.starts_with("start_") && short.ends_with("_seed_42"), "{short}");
        assert_eq!(short.chars().count(), MAX_LABEL_LENGTH);
        assert_eq!(render_svg(&GraphDrawing::default()).matches("<path class=\"link").count(), 0);
    }
}
