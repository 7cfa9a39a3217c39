//! The pages in a real browser: Chromium, driven through chromedriver, on a real socket.

mod chrome;
mod fixture;
mod keyboard;
mod layout;
mod list;
mod live;
mod node;
mod quality;
mod sharing;
mod shots;
