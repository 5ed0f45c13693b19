//! Payload jobs with real reports, files and processes. One program for all tests.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod parallel_instances;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod simulated_rounds;
#[cfg(test)]
mod units;
