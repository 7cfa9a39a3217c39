//! What is given out of built nodes.
