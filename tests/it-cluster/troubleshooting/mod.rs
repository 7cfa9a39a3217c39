//! Problems in `docs/operations/troubleshooting.md` that need an API server, reproduced with the real programs.

mod drain;
mod fleet;
mod hand_off;
mod node;
