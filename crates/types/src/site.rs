//! Sites: where workers are, as far as it matters which jobs they take.

/// Where a worker is that says nothing about it.
pub const LOCAL_SITE: &str = "local";

/// The longest name of a site, in characters.
const LONGEST: usize = 100;

/// What a word is called that cannot be the name of a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be the name of a site: one has up to {LONGEST} letters, digits, `_`, `-` and `.`, such as T2_CH_CERN"
)]
pub struct ParseSiteError(String);

/// Refuses what cannot be the name of a site.
pub fn check_site_name(name: &str) -> Result<(), ParseSiteError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = (1..=LONGEST).contains(&name.len()) && name.chars().all(is_plain);
    if fits { Ok(()) } else { Err(ParseSiteError(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_site() {
        let (longest, longer) = ("x".repeat(LONGEST), "x".repeat(LONGEST + 1));
        for (name, may_be) in [
            ("local", true),
            ("T2_CH_CERN", true),
            ("lab-3.example", true),
            (&longest, true),
            (&longer, false),
            ("", false),
            ("two words", false),
            ("Zürich", false),
            ("a/b", false),
        ] {
            assert_eq!(check_site_name(name).is_ok(), may_be, "{name}");
        }
    }
}
