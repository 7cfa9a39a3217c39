//! `nvml-simctl`: plays the owner of a simulated machine.

fn main() {}
