//! Colors, always redundant: colored text also says its meaning in words.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;
use windlass_spec::DiagnosticStyle;
use windlass_types::JobStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTone {
    Good,
    Bad,
    Warn,
    Busy,
    Dim,
    Bold,
}

impl TextTone {
    const fn ansi_code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Warn => "33",
            Self::Busy => "36",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }

    pub(crate) const fn for_status(status: JobStatus) -> Option<Self> {
        match status {
            JobStatus::Completed => Some(Self::Good),
            JobStatus::Failed | JobStatus::Terminated => Some(Self::Bad),
            JobStatus::Canceled | JobStatus::PendingFailed => Some(Self::Warn),
            JobStatus::Pending | JobStatus::Running => Some(Self::Busy),
            JobStatus::Uninitialized | JobStatus::Disabled => Some(Self::Dim),
            JobStatus::Blocked | JobStatus::Ready => None,
        }
    }
}

/// No character: text has none.
pub(super) const COLOR_MARK_START: char = '\u{10fffe}';

/// Starts a color in text that is not written yet. It is random, so foreign text cannot contain it; writing turns
/// it into an escape sequence and makes all other escape sequences harmless.
pub(super) fn color_mark() -> &'static str {
    static MARK: LazyLock<String> =
        LazyLock::new(|| format!("{COLOR_MARK_START}{:016x}.", RandomState::new().build_hasher().finish()));
    &MARK
}

/// Colors of text that is known to contain no foreign escape sequences.
pub(super) fn mark_colors(text: &str) -> String {
    text.replace("\x1b[", color_mark())
}

/// The colors of text that is written to something else than a terminal.
pub(super) fn unmark_colors(text: &str) -> String {
    text.replace(color_mark(), "\x1b[")
}

/// Colors text, or leaves it unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPainter {
    pub(crate) enabled: bool,
}

impl TextPainter {
    pub(crate) const PLAIN: Self = Self { enabled: false };

    pub(crate) fn apply(self, tone: impl Into<Option<TextTone>>, text: &str) -> String {
        match tone.into() {
            Some(tone) if self.enabled && !text.is_empty() => {
                let (mark, code) = (color_mark(), tone.ansi_code());
                format!("{mark}{code}m{text}{mark}0m")
            }
            _ => text.to_owned(),
        }
    }

    /// Style of excerpts of a spec file.
    pub(crate) const fn spec_style(self) -> DiagnosticStyle {
        if self.enabled { DiagnosticStyle::Ansi } else { DiagnosticStyle::Plain }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::escape_control;
    use super::*;

    #[test]
    fn plain_painter_adds_no_escapes() {
        assert_eq!(TextPainter::PLAIN.apply(TextTone::Bad, "failed"), "failed");
        let painted = TextPainter { enabled: true }.apply(TextTone::Bad, "failed");
        assert_eq!(escape_control(&painted), "\x1b[31mfailed\x1b[0m");
        assert_eq!(TextPainter { enabled: true }.apply(None, "ready"), "ready");
    }
}
