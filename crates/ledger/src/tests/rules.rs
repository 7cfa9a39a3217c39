//! Rules, one by one.
