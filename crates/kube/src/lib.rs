//! Client of Kubernetes API servers: lists, page by page, and watches.
//!
//! Objects leave this crate one by one, as the bytes that the server sent: their meaning is known
//! elsewhere, and none is stored. [`reflector::Reflector`] decides the next request without I/O;
//! [`watch`] sends it. Nothing is written to a server but [`event::Event`]s.

pub mod access;
pub mod backoff;
pub mod count;
pub mod event;
pub mod get;
pub mod item;
pub mod list_many;
pub mod reflector;
pub mod resource;
pub mod response;
pub mod split;
pub mod watch;

pub use access::{Access, Server};
pub use event::Event;
pub use item::{Item, NamedObject};
pub use reflector::{Reflector, WatchEvent, WatchProblem};
pub use resource::Resource;
