//! The graph for mermaid, as GitHub and many notebooks draw it.

use crate::drawing::{Drawing, Tone};
use crate::escape;

pub fn mermaid(drawing: &Drawing) -> String {
    let mut out = String::from("flowchart LR\n");
    for (number, node) in drawing.nodes.iter().enumerate() {
        let detail = match node.detail.as_str() {
            "" => String::new(),
            detail => format!("<br/><small>{}</small>", escape::mermaid(detail)),
        };
        let class = match (node.is_critical, node.tone) {
            (_, Tone::Bad) => ":::bad",
            (_, Tone::Active) => ":::active",
            (_, Tone::Good) => ":::good",
            (_, Tone::Quiet) => ":::quiet",
            (true, Tone::Plain) => ":::critical",
            (false, Tone::Plain) => "",
        };
        put_line!(out, "  n{number}[\"{}{detail}\"]{class}", escape::mermaid(&node.title()));
    }
    for link in &drawing.links {
        let label = match link.label.as_str() {
            "" => String::new(),
            label => format!("|\"{}\"|", escape::mermaid(label)),
        };
        put_line!(out, "  n{} -->{label} n{}", link.from, link.to);
    }
    out.push_str(
        "  classDef critical stroke:#bc4c00,stroke-width:2px\n  classDef active fill:#ddf4ff,stroke:#0969da,color:#1f2328\n  \
         classDef good fill:#dafbe1,stroke:#1a7f37,color:#1f2328\n  classDef bad fill:#ffebe9,stroke:#cf222e,color:#1f2328\n  \
         classDef quiet stroke-dasharray:4 3\n",
    );
    out
}
