//! Signals by name, as people write them in specs: `SIGTERM`, `term`, `15`.

/// The signals of Linux by number, from 1, without their `SIG`.
pub const SIGNAL_NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The number of a signal on Linux; `None` if there is none of that name or number.
pub fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<usize>() {
        return (1..=SIGNAL_NAMES.len()).contains(&number).then_some(number as i32);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNAL_NAMES.iter().position(|known| *known == name).map(|index| index as i32 + 1)
}

/// `SIGTERM` for 15; `None` for a number that has no name.
pub fn signal_name(number: i32) -> Option<String> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    SIGNAL_NAMES.get(index).map(|name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_sig_and_numbers() {
        for text in ["SIGTERM", "TERM", "sigterm", "Term", "15"] {
            assert_eq!(signal_number(text), Some(15), "{text}");
        }
        assert_eq!((signal_number("SIGUSR1"), signal_number("SIGXCPU")), (Some(10), Some(24)));
        for text in ["", "SIG", "SIGTERN", "0", "32", "-9", "SIGSIGTERM"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }

    #[test]
    fn every_number_has_a_name_that_leads_back() {
        for number in 1..=31 {
            assert_eq!(signal_number(&signal_name(number).unwrap()), Some(number));
        }
        assert_eq!((signal_name(0), signal_name(32), signal_name(-1)), (None, None, None));
    }
}
