//! Authentication through the public interface.

// `cfg(test)` is what tells clippy that helpers may unwrap.
#[cfg(test)]
mod issuers;
