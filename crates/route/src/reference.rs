//! The parsing of kernel messages as functions of their bytes, for fuzz targets and their corpus.
//! Not for use.

use std::collections::BTreeSet;

use netlink_packet_route::RouteNetlinkMessage;

use crate::elsewhere::NodeInterface;
use crate::kernel::{Error, List, answered, interface, leaves_by, note_gateways};

/// The links and routes in some messages.
#[derive(Debug, Default)]
pub struct RouteMessages {
    /// The links.
    pub interfaces: Vec<NodeInterface>,
    /// The indexes of interfaces behind which a gateway forwards.
    pub gateways: BTreeSet<u32>,
    /// The interface indexes of single routes, and whether the destination is a neighbor there.
    pub routes: Vec<Option<(u32, bool)>>,
}

impl RouteMessages {
    fn add(&mut self, message: &RouteNetlinkMessage) {
        if let RouteNetlinkMessage::NewLink(link) = message {
            self.interfaces.push(interface(link, [false; 2]));
        }
        if let RouteNetlinkMessage::NewRoute(route) = message {
            note_gateways(None, &route.attributes, &mut self.gateways);
            self.routes.push(leaves_by(route));
        }
    }
}

/// Parses the pieces of a dump with sequence number 0; `None`: it was interrupted, or pieces are
/// missing.
pub fn list(pieces: &[&[u8]]) -> Result<Option<RouteMessages>, Error> {
    let mut list = List::new(0);
    for piece in pieces {
        if list.piece(piece)? {
            let mut messages = RouteMessages::default();
            list.all.iter().for_each(|it| messages.add(it));
            return Ok(list.is_whole.then_some(messages));
        }
    }
    Ok(None)
}

/// Parses a single answer with sequence number 0; `None`: it has another number.
pub fn answer(bytes: &[u8]) -> Result<Option<RouteMessages>, Error> {
    let mut messages = RouteMessages::default();
    Ok(answered(bytes, 0)?.map(|message| {
        message.iter().for_each(|it| messages.add(it));
        messages
    }))
}
