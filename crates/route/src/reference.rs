//! What is read of the kernel's messages, as functions of their bytes, for fuzz targets and their corpus. Not for use.

use std::collections::BTreeSet;

use netlink_packet_route::RouteNetlinkMessage;

use crate::elsewhere::NodeInterface;
use crate::kernel::{Error, List, answered, interface, leaves_by, note_gateways};

/// What messages say of links and routes.
#[derive(Debug, Default)]
pub struct RouteMessages {
    /// The links.
    pub interfaces: Vec<NodeInterface>,
    /// The numbers of interfaces at which somebody else forwards.
    pub gateways: BTreeSet<u32>,
    /// Where single routes lead: the number of the interface, and whether to a neighbour there.
    pub ways: Vec<Option<(u32, bool)>>,
}

impl RouteMessages {
    fn add(&mut self, message: &RouteNetlinkMessage) {
        if let RouteNetlinkMessage::NewLink(link) = message {
            self.interfaces.push(interface(link, [false; 2]));
        }
        if let RouteNetlinkMessage::NewRoute(route) = message {
            note_gateways(None, &route.attributes, &mut self.gateways);
            self.ways.push(leaves_by(route));
        }
    }
}

/// What the pieces of an answer to question 0 list; `None`: it changed meanwhile, or there are more pieces.
pub fn list(pieces: &[&[u8]]) -> Result<Option<RouteMessages>, Error> {
    let mut list = List::new(0);
    for piece in pieces {
        if list.piece(piece)? {
            let mut told = RouteMessages::default();
            list.all.iter().for_each(|it| told.add(it));
            return Ok(list.is_whole.then_some(told));
        }
    }
    Ok(None)
}

/// What the single answer to question 0 says; `None`: it answers another one.
pub fn answer(bytes: &[u8]) -> Result<Option<RouteMessages>, Error> {
    let mut told = RouteMessages::default();
    Ok(answered(bytes, 0)?.map(|message| {
        message.iter().for_each(|it| told.add(it));
        told
    }))
}
