//! The pages in a real browser: Chromium, driven through chromedriver, on a real socket.

mod availability;
mod chrome;
mod compare;
mod estimate;
mod fixture;
mod keyboard;
mod layout;
mod layouts;
mod list;
mod live;
mod making;
mod map;
mod names;
mod node;
mod overview;
mod policies;
mod profiles;
mod quality;
mod search;
mod selection;
mod sharing;
mod shots;
mod teams;
mod timeline;
mod trend;
mod without_agent;
