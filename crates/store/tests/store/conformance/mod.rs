//! What every store must do. Each case is given an empty store and knows nothing of what is behind it.

pub(crate) mod changes;
pub(crate) mod creating;
pub(crate) mod model;
pub(crate) mod reading;
pub(crate) mod runs;
