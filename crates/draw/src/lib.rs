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
mod layout;
mod mermaid;
mod plan;
mod rounds;
mod svg;
mod text;
pub mod usage;

pub use dot::dot;
pub use drawing::{Drawing, Link, Node, Tone};
pub use mermaid::mermaid;
pub use rounds::rounds;
pub use svg::svg;
pub use text::text;
