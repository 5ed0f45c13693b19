//! The words of the REST interface: what goes over the wire, and nothing else.
