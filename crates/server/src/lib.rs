//! The engine as a service: REST, events, workers, many users.
