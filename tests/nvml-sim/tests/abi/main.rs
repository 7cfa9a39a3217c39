//! The library as used by clients: loaded by path, called over C, from several processes.
#![cfg(test)]

mod clients;
mod events;
mod exports;
mod faults;
mod gpm;
mod handles;
mod processes;
mod support;
