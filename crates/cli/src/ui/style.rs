//! Colour, always as an addition: what is coloured also says its meaning in words.

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

/// Paints, or leaves text as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPainter {
    pub(crate) enabled: bool,
}

impl TextPainter {
    pub(crate) const PLAIN: Self = Self { enabled: false };

    pub(crate) fn apply(self, tone: impl Into<Option<TextTone>>, text: &str) -> String {
        match tone.into() {
            Some(tone) if self.enabled && !text.is_empty() => {
                format!("\x1b[{}m{text}\x1b[0m", tone.ansi_code())
            }
            _ => text.to_owned(),
        }
    }

    /// How pictures of a spec file are drawn.
    pub(crate) const fn spec_style(self) -> DiagnosticStyle {
        if self.enabled { DiagnosticStyle::Ansi } else { DiagnosticStyle::Plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paint_adds_nothing() {
        assert_eq!(TextPainter::PLAIN.apply(TextTone::Bad, "failed"), "failed");
        assert_eq!(TextPainter { enabled: true }.apply(TextTone::Bad, "failed"), "\x1b[31mfailed\x1b[0m");
        assert_eq!(TextPainter { enabled: true }.apply(None, "ready"), "ready");
    }
}
