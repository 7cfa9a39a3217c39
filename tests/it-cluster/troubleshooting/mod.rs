//! Messages in `docs/troubleshooting.md` that need an API server: each test causes the trouble and finds what its row quotes.

mod drain;
mod fleet;
mod hand_off;
mod node;
