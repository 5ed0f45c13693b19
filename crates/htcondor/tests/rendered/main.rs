//! Files for HTCondor, compared with golden files. One binary for all tests.

// `cfg(test)` tells clippy that helpers may unwrap.
#[cfg(test)]
mod golden;
#[cfg(test)]
mod golden_files;
#[cfg(test)]
mod specs;
