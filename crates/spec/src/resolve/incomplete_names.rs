//! Suppresses errors about names that are unknown only because their definition could not be read.

use super::regexes::literal_prefix;
use super::{EntryKind, NameResolver};
use crate::template;

/// Maximum number of unexpanded entries to compare names with.
const MAX_CHECKED_ENTRIES: usize = 20;

impl NameResolver<'_, '_> {
    /// Whether the name may belong to an entry that could not be read or expanded.
    pub(super) fn may_be_unread(&self, sort: EntryKind, name: &str) -> bool {
        self.may_name_be_unread(sort, |written| can_expand_to(written, name))
    }

    /// Whether a regular expression may match the name of an entry that could not be read or expanded.
    pub(super) fn may_match_unread(&self, sort: EntryKind, pattern: &str) -> bool {
        let prefix = literal_prefix(pattern);
        self.may_name_be_unread(sort, |written| {
            let start = template::find_placeholders(written)
                .next()
                .map_or(written, |placeholder| &written[..placeholder.range.start]);
            start.starts_with(prefix) || prefix.starts_with(start)
        })
    }

    /// `is_it` is called with names as written.
    fn may_name_be_unread(&self, sort: EntryKind, is_it: impl Fn(&str) -> bool) -> bool {
        let spec = self.spec;
        let name_of = |entry: u32| match sort {
            EntryKind::Jobs => spec.jobs[entry as usize].name,
            EntryKind::Files => spec.files[entry as usize].name,
            EntryKind::UserData => spec.user_data[entry as usize].name,
        };
        let all_read = match sort {
            EntryKind::Jobs => self.name_completeness.all_jobs,
            EntryKind::Files => self.name_completeness.all_files,
            EntryKind::UserData => self.name_completeness.all_user_data,
        };
        let unmade = &self.entry_series(sort).unexpanded_entries;
        !all_read
            || unmade.len() > MAX_CHECKED_ENTRIES
            || unmade.iter().any(|entry| is_it(spec.texts.get(name_of(*entry).text)))
    }
}

/// Whether `name` can result from `written` with some values.
fn can_expand_to(written: &str, name: &str) -> bool {
    let (mut rest, mut from) = (name, 0);
    for placeholder in template::find_placeholders(written) {
        let piece = &written[from..placeholder.range.start];
        let after = match from {
            0 => rest.strip_prefix(piece),
            _ => rest.split_once(piece).map(|(_, after)| after),
        };
        let Some(after) = after else { return false };
        (rest, from) = (after, placeholder.range.end);
    }
    if from == 0 { name == written } else { rest.ends_with(&written[from..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_can_expand_only_to_matching_names() {
        for (written, name, expected) in [
            ("solve", "solve", true),
            ("solve", "solve_1", false),
            ("solve_{i}", "solve_12", true),
            ("solve_{i}", "prepare_12", false),
            ("{i}_{j}.out", "a_b.out", true),
            ("{i}_{j}.out", "ab.out", false),
            ("{i}_{j}.out", "a_b.txt", false),
            ("{i}{j}", "anything", true),
        ] {
            assert_eq!(can_expand_to(written, name), expected, "{written} {name}");
        }
    }
}
