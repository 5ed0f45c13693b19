//! Rules for names. Names are used in paths, ClassAds, URLs and shells, so characters with a special meaning
//! there are not allowed.

use super::DocumentProblems;
use super::field_reader::LocatedValue;

/// The characters that a kind of name may have besides letters and digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRule {
    description: &'static str,
    extra_chars: &'static str,
    max_length: usize,
}

pub(super) const REQUEST_NAME: NameRule =
    NameRule { description: "a request name", extra_chars: "_.-", max_length: 200 };
pub(super) const PERSON_NAME: NameRule =
    NameRule { description: "a name of a person or group", extra_chars: "_.-@", max_length: 100 };
pub(super) const SITE_NAME: NameRule =
    NameRule { description: "a site name", extra_chars: "_.-", max_length: 100 };
pub(super) const VERSION_NAME: NameRule =
    NameRule { description: "a software version", extra_chars: "_.-+", max_length: 100 };
pub(super) const TAG_NAME: NameRule =
    NameRule { description: "a global tag", extra_chars: "_.-:", max_length: 200 };
pub(super) const LABEL_NAME: NameRule =
    NameRule { description: "a label", extra_chars: "_-", max_length: 100 };

impl NameRule {
    fn find_problem(&self, name: &str) -> Option<String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || self.extra_chars.contains(c);
        let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() {
            Some("is empty".to_owned())
        } else if name.len() > self.max_length {
            Some(format!("is longer than {} characters", self.max_length))
        } else if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
            Some(format!("is not {}: it contains {bad:?}", self.description))
        } else if !name.starts_with(first) {
            Some(format!("is not {}: it begins with a special character", self.description))
        } else if name.contains("..") {
            Some(format!("is not {}: it contains `..`", self.description))
        } else {
            None
        }
    }

    pub(super) fn check_field(&self, name: &LocatedValue<String>, faults: &mut DocumentProblems) {
        self.check_text(&name.path, &name.value, faults);
    }

    pub(super) fn check_text(&self, path: &str, name: &str, faults: &mut DocumentProblems) {
        if let Some(reason) = self.find_problem(name) {
            let remedy =
                format!("letters, digits and `{}`, beginning with a letter or digit", self.extra_chars);
            faults.push(path, reason, Some(remedy));
        }
    }
}

/// `/PRIMARY/PROCESSED/TIER`, as in DBS.
pub(super) fn check_dataset(path: &str, name: &str, faults: &mut DocumentProblems) {
    if !is_dataset(name) {
        let shown: String = name.chars().take(80).collect();
        let remedy = "`/PRIMARY/PROCESSED/TIER`: letters, digits, `-`, `_` (and `.` in the middle part), a tier of capitals";
        faults.push(path, format!("is not a dataset name: {shown:?}"), Some(remedy.to_owned()));
    }
}

fn is_dataset(name: &str) -> bool {
    let fits = |part: &str, others: &str, longest: usize| {
        (1..=longest).contains(&part.len())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
    };
    let mut parts = name.split('/');
    let (before, primary, processed, tier, more) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
    before == Some("")
        && more.is_none()
        && primary.is_some_and(|part| fits(part, "-_", 99))
        && processed
            .is_some_and(|part| fits(part, ".-_", 199) && !part.starts_with('.') && !part.contains(".."))
        && tier.is_some_and(|part| {
            (1..=50).contains(&part.len()) && part.chars().all(|c| c.is_ascii_uppercase() || c == '-')
        })
}

/// A distinguished name: free text on one line, without quotes.
pub(super) fn check_dn(name: &LocatedValue<String>, faults: &mut DocumentProblems) {
    let bad = |c: char| c.is_control() || matches!(c, '"' | '\\' | '`' | '$' | '\'');
    if name.value.len() > 500 || name.value.contains(bad) {
        faults.push(&name.path, "is not a distinguished name", Some("one line without quotes".to_owned()));
    }
}
