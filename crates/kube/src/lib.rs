//! API servers: what they hold, page by page, and what changes.
//!
//! Objects leave here as the bytes that the server sent, each by itself: what they mean is known elsewhere, and nothing
//! of them is kept. [`follow::Follow`] decides what to ask next and does nothing; [`stream`] asks. Nothing is
//! written to a server but [`event::Event`]s.

pub mod access;
pub mod answer;
pub mod event;
pub mod follow;
pub mod gather;
pub mod get;
pub mod item;
pub mod pace;
pub mod resource;
pub mod split;
pub mod stream;

pub use access::{Access, Server};
pub use event::Event;
pub use follow::{Follow, News, Trouble};
pub use item::{Item, Named};
pub use resource::Resource;
