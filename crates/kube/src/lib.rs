//! API servers: what they hold, page by page, and what changes.
//!
//! Objects leave here as the bytes that the server sent, each by itself: what they mean is known elsewhere, and nothing
//! of them is kept. [`follow::Follow`] decides what to ask next and does nothing; [`stream`] asks. Nothing is
//! written to a server but [`event::Event`]s.

pub mod access;
pub mod backoff;
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
