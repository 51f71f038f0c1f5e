//! Walks: where they stop and go on.
