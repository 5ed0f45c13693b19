//! Which names are allowed. They end up in paths, ClassAds, URLs and shells: nothing that means something there gets in.

use super::Faults;
use super::reader::At;

/// What kind of name it is decides which characters it may have, besides letters and digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexicon {
    what: &'static str,
    others: &'static str,
    longest: usize,
}

pub(super) const REQUEST: Lexicon = Lexicon { what: "the name of a request", others: "_.-", longest: 200 };
pub(super) const PERSON: Lexicon =
    Lexicon { what: "the name of a person or group", others: "_.-@", longest: 100 };
pub(super) const SITE: Lexicon = Lexicon { what: "the name of a site", others: "_.-", longest: 100 };
pub(super) const VERSION: Lexicon = Lexicon { what: "a version of software", others: "_.-+", longest: 100 };
pub(super) const TAG: Lexicon = Lexicon { what: "a global tag", others: "_.-:", longest: 200 };
pub(super) const LABEL: Lexicon = Lexicon { what: "a label", others: "_-", longest: 100 };

impl Lexicon {
    fn wrong_with(&self, name: &str) -> Option<String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || self.others.contains(c);
        let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() {
            Some("is empty".to_owned())
        } else if name.len() > self.longest {
            Some(format!("is longer than {} characters", self.longest))
        } else if let Some(bad) = name.chars().find(|c| !allowed(*c)) {
            Some(format!("is not {}: it contains {bad:?}", self.what))
        } else if !name.starts_with(first) {
            Some(format!("is not {}: it begins with a sign", self.what))
        } else if name.contains("..") {
            Some(format!("is not {}: it contains `..`", self.what))
        } else {
            None
        }
    }

    pub(super) fn check(&self, name: &At<String>, faults: &mut Faults) {
        self.check_one(&name.path, &name.value, faults);
    }

    pub(super) fn check_one(&self, path: &str, name: &str, faults: &mut Faults) {
        if let Some(reason) = self.wrong_with(name) {
            let remedy = format!("letters, digits and `{}`, beginning with a letter or digit", self.others);
            faults.push(path, reason, Some(remedy));
        }
    }
}

/// `/PRIMARY/PROCESSED/TIER`, as DBS has it.
pub(super) fn check_dataset(path: &str, name: &str, faults: &mut Faults) {
    if !is_dataset(name) {
        let shown: String = name.chars().take(80).collect();
        let remedy = "`/PRIMARY/PROCESSED/TIER`: letters, digits, `-`, `_` (and `.` in the middle part), a tier of capitals";
        faults.push(path, format!("is not the name of a dataset: {shown:?}"), Some(remedy.to_owned()));
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

/// A distinguished name: free text, but on one line and without anything that ends a quotation.
pub(super) fn check_dn(name: &At<String>, faults: &mut Faults) {
    let bad = |c: char| c.is_control() || matches!(c, '"' | '\\' | '`' | '$' | '\'');
    if name.value.len() > 500 || name.value.contains(bad) {
        faults.push(&name.path, "is not a distinguished name", Some("one line without quotes".to_owned()));
    }
}
