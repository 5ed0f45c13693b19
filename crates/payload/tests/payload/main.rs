//! Payload jobs with real reports, files and processes. One program for all tests.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod rehearsals;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod side_by_side;
#[cfg(test)]
mod units;
