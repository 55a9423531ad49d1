//! The vhost-user door against a front-end of our own: the protocol's side from the library of
//! rust-vmm, the guest's side (queues, descriptors, requests) from here.

mod guest;
mod hostile;
#[path = "../memory/mod.rs"]
mod memory;
mod reconnect;
mod requests;
mod server;
