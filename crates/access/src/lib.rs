//! Access to the aggregator: authentication, authorization and the audit log of HTTP requests, and the creation of
//! hardware profiles on behalf of users.

pub mod audit;
pub mod cached_lookup;
pub mod creation;
pub mod guard;
pub mod trusted_proxies;
pub mod visibility;
