//! The protocol by hand.
