//! Files for HTCondor, compared with those that are kept. One program for all of it.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod golden;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod specs;
