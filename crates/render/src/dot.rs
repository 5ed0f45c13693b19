//! Renders the graph for Graphviz.

use crate::drawing::{DrawingNode, GraphDrawing, StatusTone};
use crate::escape;

/// Renders the graph in the DOT language, for example for `dot -Tsvg`.
pub fn render_dot(drawing: &GraphDrawing) -> String {
    let mut out = String::from(
        "digraph workflow {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f6f8fa\", \
         color=\"#8c959f\", fontname=\"Helvetica\", fontsize=11];\n  edge [fontname=\"Helvetica\", \
         fontsize=9];\n",
    );
    for (stage, nodes) in drawing.stages.iter().enumerate() {
        let heading = drawing.headings.get(stage).map_or("", String::as_str);
        put_line!(out, "  subgraph cluster_{stage} {{");
        put_line!(out, "    label=\"{}\"; style=dotted; color=\"#d0d7de\";", escape::escape_dot(heading));
        for &node in nodes {
            put_line!(out, "    n{node} [{}];", render_attributes(&drawing.nodes[node]));
        }
        out.push_str("  }\n");
    }
    for link in &drawing.links {
        let color = if link.is_critical { "#bc4c00" } else { "#8c959f" };
        let label = escape::escape_dot(&link.label);
        put_line!(out, "  n{} -> n{} [label=\"{label}\", color=\"{color}\"];", link.from, link.to);
    }
    out.push_str("}\n");
    out
}

fn render_attributes(node: &DrawingNode) -> String {
    let detail = match node.detail.as_str() {
        "" => String::new(),
        detail => format!("\\n{}", escape::escape_dot(detail)),
    };
    let fill = match node.tone {
        StatusTone::Plain => "",
        StatusTone::Active => ", fillcolor=\"#ddf4ff\"",
        StatusTone::Good => ", fillcolor=\"#dafbe1\"",
        StatusTone::Bad => ", fillcolor=\"#ffebe9\"",
        StatusTone::Quiet => ", fillcolor=\"#ffffff\", fontcolor=\"#6e7781\"",
    };
    let critical = if node.is_critical { ", color=\"#bc4c00\", penwidth=2" } else { "" };
    format!("label=\"{}{detail}\"{fill}{critical}", escape::escape_dot(&node.render_title()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::DrawingLink;

    #[test]
    fn dot_nodes_are_grouped_by_stage_and_names_quoted() {
        let node = |label: &str, is_critical| DrawingNode {
            label: label.into(),
            jobs: 2,
            is_critical,
            ..DrawingNode::default()
        };
        let drawing = GraphDrawing {
            stages: vec![vec![0], vec![1]],
            headings: vec!["stage 1".into(), "stage 2".into()],
            nodes: vec![node("say \"hi\"", true), node("b", false)],
            links: vec![DrawingLink { from: 0, to: 1, label: "all".into(), is_critical: true }],
        };
        let text = render_dot(&drawing);
        assert!(text.contains("cluster_0 {\n    label=\"stage 1\""), "{text}");
        assert!(
            text.contains("    n0 [label=\"say \\\"hi\\\" × 2\", color=\"#bc4c00\", penwidth=2];\n"),
            "{text}"
        );
        assert!(text.contains("  n0 -> n1 [label=\"all\", color=\"#bc4c00\"];\n"), "{text}");
    }
}
