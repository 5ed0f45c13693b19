//! Names of environment variables with secret values, and the mask shown instead.

/// Shown instead of a secret.
pub const MASK: &str = "********";

/// Default patterns of secret names; `*` matches any text, case is ignored.
const DEFAULT_SECRET_NAMES: &[&str] = &[
    "*TOKEN*",
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",
    "*PRIVATE*",
    "*_KEY",
    "*_KEY_*",
    "*APIKEY*",
    "*ACCESSKEY*",
    "KEY",
    "*_PWD",
    "*_PW",
    "*_DSN",
    "*DATABASE_URL*",
];

/// The patterns in effect.
#[derive(Clone, Debug)]
pub struct SecretNames {
    patterns: Vec<String>,
    exceptions: Vec<String>,
}

impl Default for SecretNames {
    fn default() -> Self {
        Self::new(&[], &[])
    }
}

impl SecretNames {
    /// Returns the default patterns, with `more`, without the exceptions.
    pub fn new(more: &[String], exceptions: &[String]) -> Self {
        let upper = |pattern: &str| pattern.to_uppercase();
        let patterns =
            DEFAULT_SECRET_NAMES.iter().map(|usual| upper(usual)).chain(more.iter().map(|more| upper(more)));
        Self { patterns: patterns.collect(), exceptions: exceptions.iter().map(|name| upper(name)).collect() }
    }

    pub fn is_secret(&self, name: &str) -> bool {
        let name = name.to_uppercase();
        let any = |patterns: &[String]| {
            patterns.iter().any(|pattern| matches_wildcard(pattern.as_bytes(), name.as_bytes()))
        };
        any(&self.patterns) && !any(&self.exceptions)
    }

    /// Returns the value to show; an empty value is not masked.
    pub fn mask_value<'a>(&self, name: &str, value: &'a str) -> &'a str {
        if !value.is_empty() && self.is_secret(name) { MASK } else { value }
    }
}

/// Whether a pattern with `*` matches the whole text. Backtracks only to the last star, so it takes at most
/// pattern length times text length steps.
fn matches_wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognized() {
        let masking = SecretNames::default();
        for name in [
            "API_TOKEN",
            "token",
            "MY_SECRET_1",
            "PGPASSWORD",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_KEY",
            "OPENAI_API_KEY",
            "X_KEY_FILE",
        ] {
            assert!(masking.is_secret(name), "{name}");
        }
        for name in ["PATH", "HOME", "KEYBOARD", "MONKEY", "OMP_NUM_THREADS", "PWD", "TURNKEYS"] {
            assert!(!masking.is_secret(name), "{name}");
        }
        assert_eq!(masking.mask_value("TOKEN", "abc"), MASK);
        assert_eq!(masking.mask_value("TOKEN", ""), "");
        assert_eq!(masking.mask_value("HOME", "/root"), "/root");
    }

    #[test]
    fn secret_patterns_can_be_added_and_excluded() {
        let masking = SecretNames::new(&["pin_*".into()], &["TOKENIZERS_PARALLELISM".into()]);
        assert!(masking.is_secret("PIN_CODE") && masking.is_secret("TOKEN"));
        assert!(!masking.is_secret("TOKENIZERS_PARALLELISM"));
    }

    #[test]
    fn wildcards_match() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "A", false),
            ("A*", "A", true),
            ("*A*B*", "XAXBX", true),
            ("*AB", "AAB", true),
            ("*AB", "ABA", false),
            ("A*A", "A", false),
        ] {
            assert_eq!(matches_wildcard(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!matches_wildcard("*A".repeat(40).as_bytes(), "A".repeat(39).as_bytes()));
    }
}
