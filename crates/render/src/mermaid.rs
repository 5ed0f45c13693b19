//! Renders the graph for Mermaid, which GitHub and many notebooks support.

use crate::drawing::{GraphDrawing, StatusTone};
use crate::escape;

const CLASS_DEFINITIONS: &str = "  classDef critical stroke:#bc4c00,stroke-width:2px
  classDef active fill:#ddf4ff,stroke:#0969da,color:#1f2328
  classDef good fill:#dafbe1,stroke:#1a7f37,color:#1f2328
  classDef bad fill:#ffebe9,stroke:#cf222e,color:#1f2328
  classDef quiet stroke-dasharray:4 3
";

pub fn render_mermaid(drawing: &GraphDrawing) -> String {
    let mut out = String::from("flowchart LR\n");
    for (number, node) in drawing.nodes.iter().enumerate() {
        let detail = match node.detail.as_str() {
            "" => String::new(),
            detail => format!("<br/><small>{}</small>", escape::escape_mermaid(detail)),
        };
        let class = match (node.is_critical, node.tone) {
            (_, StatusTone::Bad) => ":::bad",
            (_, StatusTone::Active) => ":::active",
            (_, StatusTone::Good) => ":::good",
            (_, StatusTone::Quiet) => ":::quiet",
            (true, StatusTone::Plain) => ":::critical",
            (false, StatusTone::Plain) => "",
        };
        put_line!(out, "  n{number}[\"{}{detail}\"]{class}", escape::escape_mermaid(&node.render_title()));
    }
    for link in &drawing.links {
        let label = match link.label.as_str() {
            "" => String::new(),
            label => format!("|\"{}\"|", escape::escape_mermaid(label)),
        };
        put_line!(out, "  n{} -->{label} n{}", link.from, link.to);
    }
    out.push_str(CLASS_DEFINITIONS);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::{DrawingLink, DrawingNode};

    #[test]
    fn mermaid_names_cannot_end_their_label() {
        let node = |label: &str, tone| DrawingNode {
            label: label.into(),
            jobs: 1,
            tone,
            detail: "1 cpu".into(),
            ..DrawingNode::default()
        };
        let drawing = GraphDrawing {
            stages: vec![vec![0], vec![1]],
            headings: vec![String::new(); 2],
            nodes: vec![node("solve_{nu}", StatusTone::Plain), node("x\"]; click", StatusTone::Bad)],
            links: vec![DrawingLink { from: 0, to: 1, label: "1:1".into(), is_critical: false }],
        };
        let text = render_mermaid(&drawing);
        assert!(
            text.starts_with("flowchart LR\n  n0[\"solve_#123;nu#125;<br/><small>1 cpu</small>\"]\n"),
            "{text}"
        );
        assert!(text.contains("  n1[\"x#34;#93;#59; click<br/><small>1 cpu</small>\"]:::bad\n"), "{text}");
        assert!(text.contains("  n0 -->|\"1:1\"| n1\n"), "{text}");
    }
}
