//! Storage of the strings of a spec: in the source if possible, else in a separate buffer.
//!
//! A million jobs have two million strings. Almost all of them occur verbatim in the file, so a spec stores eight
//! bytes for each instead of an allocation.

use crate::source::SourceSpan;

/// A string in a [`TextStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextRef {
    /// Offset in the source, continued into the buffer.
    start: u32,
    length: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct TextStore<'s> {
    source: &'s str,
    /// Texts that do not occur verbatim in the source: escapes, folded lines.
    extra: String,
}

impl<'s> TextStore<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self { source, extra: String::new() }
    }

    pub(crate) fn source(&self) -> &'s str {
        self.source
    }

    /// Stores `text`, which was read from `span`.
    pub(crate) fn intern(&mut self, text: &str, span: SourceSpan) -> TextRef {
        let length = text.len() as u32;
        // The span of a quoted scalar includes the quotes.
        for start in [span.start, span.start + 1] {
            if self.source.get(start as usize..(start + length) as usize) == Some(text) {
                return TextRef { start, length };
            }
        }
        let start = (self.source.len() + self.extra.len()) as u32;
        self.extra.push_str(text);
        TextRef { start, length }
    }

    /// Returns the location of a part of `text`, if it occurs verbatim in the source.
    pub(crate) fn find_span(&self, text: TextRef, part: std::ops::Range<usize>) -> Option<SourceSpan> {
        let start = text.start as usize;
        let is_in_source = start + text.length as usize <= self.source.len();
        is_in_source.then(|| SourceSpan::new(start + part.start, start + part.end))
    }

    pub(crate) fn get(&self, text: TextRef) -> &str {
        let (start, length) = (text.start as usize, text.length as usize);
        match start.checked_sub(self.source.len()) {
            Some(start) if length > 0 => &self.extra[start..start + length],
            Some(_) => "",
            None => &self.source[start..start + length],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_text_is_not_copied() {
        let source = "a: b\nc: 'd'\ne: \"\\u0066\"";
        let mut texts = TextStore::new(source);
        let cases = [("b", 3, 4), ("d", 8, 11), ("f", 15, 23), ("", 24, 24), ("é", 15, 23), ("", 0, 1)];
        let kept = cases.map(|(text, start, end)| texts.intern(text, SourceSpan::new(start, end)));
        for ((text, ..), kept) in cases.into_iter().zip(kept) {
            assert_eq!(texts.get(kept), text);
        }
        assert_eq!(texts.extra, "fé");
    }
}
