//! Renders the graph of a workflow (text, dot, mermaid, svg), the plan of a request, estimates and measurements
//! of its rounds (svg), and the resource usage of jobs over time (svg, html).
//!
//! Pure functions: values in, text out. Every name in a picture is escaped for its format, because names come
//! from users and pictures may be opened in a browser.

/// Appends formatted text to a string. Unlike `write!`, it cannot fail.
macro_rules! put {
    ($out:expr, $($format:tt)*) => { $out.push_str(&format!($($format)*)) };
}

/// Like `put!`, with a line break.
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
