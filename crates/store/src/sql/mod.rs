//! The SQL of the store, as text. `common` has statements for both databases (`workers_and_parts`, `requests`,
//! `datasets` and `allocations` too), `sqlite` and `postgres` those for one.
//!
//! Rules for `common`: times are parameters, never `now()`; `$1..$n` first appear in ascending order, because
//! SQLite takes `$n` for a name and numbers names in order of appearance (a test checks every statement).

pub(crate) mod allocations;
pub(crate) mod checks;
pub(crate) mod common;
pub(crate) mod datasets;
pub(crate) mod postgres;
pub(crate) mod requests;
pub(crate) mod sqlite;
pub(crate) mod tables;
pub(crate) mod workers_and_parts;

/// Defines statements as constants, and lists all of them for the tests.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $text;)*

        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}
use statements;

#[cfg(test)]
mod tests {
    /// The numbers behind `$` in order of first appearance.
    fn placeholders(sql: &str) -> Vec<u32> {
        let mut seen = Vec::new();
        for piece in sql.split('$').skip(1) {
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            let number = piece[..digits].parse().expect("a number behind $");
            if !seen.contains(&number) {
                seen.push(number);
            }
        }
        seen
    }

    #[test]
    fn placeholders_first_appear_in_ascending_order() {
        assert_eq!(placeholders("a $2 b $1 c $2"), [2, 1]);
        let all = super::common::ALL.iter().chain(super::workers_and_parts::ALL);
        let all = all.chain(super::requests::ALL).chain(super::datasets::ALL).chain(super::allocations::ALL);
        for (name, sql) in all.chain(super::sqlite::ALL).chain(super::postgres::ALL) {
            let found = placeholders(sql);
            let ascending: Vec<u32> = (1..=found.len() as u32).collect();
            assert_eq!(found, ascending, "{name}: {sql}");
        }
    }
}
