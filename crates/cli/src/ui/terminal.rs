//! Terminal capabilities: presence, size, colors.

use crate::args::ColorChoice;
use std::io::IsTerminal as _;
use std::os::fd::AsFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The size of the terminal behind this handle; `None` if there is no terminal.
pub(crate) fn terminal_size(handle: impl AsFd) -> Option<TerminalSize> {
    if !handle.as_fd().is_terminal() {
        return None;
    }
    let reported = rustix::termios::tcgetwinsize(handle).ok();
    let (columns, rows) =
        reported.map_or((0, 0), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    let or = |value: usize, variable: &str, fallback: usize| match value {
        0 => std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(fallback),
        known => known,
    };
    Some(TerminalSize { columns: or(columns, "COLUMNS", 80), rows: or(rows, "LINES", 24) })
}

/// Cannot move its cursor.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether to color output to a handle that is (not) a terminal.
pub(crate) fn wants_color(choice: ColorChoice, is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    decide_color(choice, is_terminal, set("NO_COLOR"), is_dumb())
}

const fn decide_color(choice: ColorChoice, is_terminal: bool, no_color: bool, dumb: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && !no_color && !dumb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_is_used_only_on_capable_terminals() {
        assert!(decide_color(ColorChoice::Auto, true, false, false));
        assert!(!decide_color(ColorChoice::Auto, false, false, false));
        assert!(!decide_color(ColorChoice::Auto, true, true, false));
        assert!(!decide_color(ColorChoice::Auto, true, false, true));
        assert!(decide_color(ColorChoice::Always, false, true, true));
        assert!(!decide_color(ColorChoice::Never, true, false, false));
    }
}
