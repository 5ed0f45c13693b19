//! A typed client of a Windlass server.
