//! Pictures: of a workflow's graph (text, dot, mermaid, svg), of the plan of a request, of how its
//! rounds learn (svg), and of what its jobs used over time (svg, html).
//!
//! Pure: values go in, text comes out. Every name that goes into a picture is escaped for its format; names are the
//! user's, and a picture may be opened in a browser.

/// Adds formatted text to a string. Unlike with `write!`, there is nothing that could fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => { $out.push_str(&format!($($format)*)) };
}

/// The same, and a line break.
macro_rules! put_line {
    ($out:expr, $($format:tt)*) => {{
        $out.push_str(&format!($($format)*));
        $out.push('\n');
    }};
}

mod canvas;
mod dot;
mod drawing;
mod escape;
mod graph_svg;
mod graph_text;
mod layout;
mod mermaid;
mod plan_drawing;
mod rounds_plot;
pub mod usage_plot;

pub use dot::render_dot;
pub use drawing::{DrawingLink, DrawingNode, GraphDrawing, StatusTone};
pub use graph_svg::render_svg;
pub use graph_text::render_text;
pub use mermaid::render_mermaid;
pub use rounds_plot::render_rounds;
