//! The gate from outside.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod issuers;
