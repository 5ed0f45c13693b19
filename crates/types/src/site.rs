//! Names of sites, which decide what jobs a worker takes.

/// The site of a worker that does not name one.
pub const LOCAL_SITE: &str = "local";

/// Maximum length of a site name, in characters.
const LONGEST: usize = 100;

/// An invalid site name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid site name `{0}`: up to {LONGEST} letters, digits, `_`, `-` and `.` are allowed, as in T2_CH_CERN"
)]
pub struct ParseSiteError(String);

/// Rejects invalid site names.
pub fn check_site_name(name: &str) -> Result<(), ParseSiteError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = (1..=LONGEST).contains(&name.len()) && name.chars().all(is_plain);
    if fits { Ok(()) } else { Err(ParseSiteError(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_names_are_checked() {
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
