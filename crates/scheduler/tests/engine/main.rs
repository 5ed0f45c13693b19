//! The engine with a real database, and workers that do as a test says.

#[cfg(test)]
mod added;
#[cfg(test)]
mod assignments;
#[cfg(test)]
mod common;
#[cfg(test)]
mod dispatch;
#[cfg(test)]
mod retries;
