//! Offers of constructed nodes.
