//! Validation of names that become parts of paths.

/// Checks the name of a request, step, unit, site or dataset tier: one path component, safe in a shell and on
/// every file system.
pub fn check_name(name: &str) -> Result<(), PathNameError> {
    if name.is_empty() {
        return Err(PathNameError::Empty);
    }
    if name.len() > MAX_NAME {
        return Err(PathNameError::TooLong(MAX_NAME));
    }
    if name.starts_with(['.', '-']) {
        return Err(PathNameError::Begins(name.to_owned()));
    }
    check_characters(name, is_allowed_char)
}

/// Checks a logical file name: absolute, made of valid names, without `..`.
pub fn check_lfn(lfn: &str) -> Result<(), PathNameError> {
    if lfn.len() > MAX_LFN {
        return Err(PathNameError::TooLong(MAX_LFN));
    }
    let Some(relative) = lfn.strip_prefix('/') else {
        return Err(PathNameError::NotAbsolute(lfn.to_owned()));
    };
    for part in relative.split('/') {
        if part.is_empty() || part == "." || part == ".." {
            return Err(PathNameError::LeadsOutside(lfn.to_owned()));
        }
    }
    check_characters(relative, |c| is_allowed_char(c) || "/+=:@%#,~".contains(c))
}

/// Longest file name that common file systems accept.
const MAX_NAME: usize = 255;
/// Longest name that the dataset bookkeeping accepts.
const MAX_LFN: usize = 700;

fn is_allowed_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

fn check_characters(text: &str, allowed: impl Fn(char) -> bool) -> Result<(), PathNameError> {
    text.chars().find(|&c| !allowed(c)).map_or(Ok(()), |c| Err(PathNameError::Character(c, text.to_owned())))
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathNameError {
    #[error("the name is empty")]
    Empty,
    #[error("the name is longer than {0} bytes")]
    TooLong(usize),
    #[error("`{0}` begins with `.` or `-`")]
    Begins(String),
    #[error("`{0}` does not begin with `/`")]
    NotAbsolute(String),
    #[error("`{0}` has an empty part, `.` or `..`")]
    LeadsOutside(String),
    #[error("character {0:?} is not allowed in {1:?}")]
    Character(char, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_path_components() {
        for good in ["GEN", "T2_CH_CERN", "pdmv_1.2-v3", "mg_000001", "mg_1234567"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", ".x", "-rf", "a/b", "a b", "a\0", "ä", "$(id)", "a;b", &"x".repeat(256)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_lfn_stays_below_its_root() {
        for good in ["/store/mc/Run3/TTbar/GEN-SIM/v1-v2/000001.root", "/store/user/a+b=c:d@e%20f"] {
            assert_eq!(check_lfn(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "/",
            "store/x",
            "/store/../etc/passwd",
            "/store/./x",
            "//x",
            "/store/x/",
            "/a b",
            "/a\0",
            "/a\n",
        ] {
            assert!(check_lfn(bad).is_err(), "{bad:?}");
        }
        assert!(check_lfn(&format!("/{}", "x".repeat(700))).is_err());
    }
}
