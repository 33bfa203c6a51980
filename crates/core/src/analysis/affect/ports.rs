//! The ports that the rules of a subject distinguish, with one port for each.

use std::num::NonZeroU16;

use super::mask::Mask;
use super::stack::Stack;
use crate::decide::{FlowView, Traffic};
use crate::model::Pod;
use crate::net::Protocol;
use crate::program::{AddressAtom, Class, NONE, PortMap, PortMapEntry, Program};

/// Well-known ports. A witness with one of them is easier to read.
const FAMILIAR: [(Protocol, u16); 4] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 443),
    (Protocol::Tcp, 8080),
    (Protocol::Udp, 53),
];

/// Port atoms by the rules that cover them.
#[derive(Debug)]
pub(super) struct Ports<'g, 'p> {
    program: &'p Program,
    stack: &'g Stack<'p>,
    subject: &'p Class,
    /// The atoms, ascending, for each distinct mask.
    distinct: Vec<(Mask, Vec<u32>)>,
}

/// Ports that no rule distinguishes.
#[derive(Debug)]
pub(super) struct PortChoice {
    pub(super) mask: Mask,
    /// One of them.
    pub(super) traffic: Traffic,
}

impl<'g, 'p> Ports<'g, 'p> {
    pub(super) fn new(
        program: &'p Program,
        stack: &'g Stack<'p>,
        subject: &'p Class,
    ) -> Ports<'g, 'p> {
        let mut ports = Ports {
            program,
            stack,
            subject,
            distinct: Vec::new(),
        };
        for atom in 0..=program.ports.portless() {
            let mask = ports.mask(atom, None);
            // A linear search: a subject's rules have few distinct port lists.
            match ports.distinct.iter_mut().find(|(it, _)| *it == mask) {
                Some((_, atoms)) => atoms.push(atom),
                None => ports.distinct.push((mask, vec![atom])),
            }
        }
        ports
    }

    /// Returns the rules that cover an atom, or a named port in it.
    fn mask(&self, atom: u32, named: Option<&PortMapEntry>) -> Mask {
        // Only the port matters; the peer is none.
        let view = FlowView {
            direction: self.stack.direction,
            subject: self.subject,
            class: None,
            node: None,
            address: AddressAtom(NONE),
            port: atom,
            named,
        };
        self.stack
            .mask(|rule| self.program.port_matches(rule, &view))
    }

    /// Returns the rules that cover one port of a destination.
    pub(super) fn of(&self, protocol: Protocol, port: NonZeroU16, map: Option<&PortMap>) -> Mask {
        let atom = self.program.ports.of(protocol, port.get());
        self.mask(atom, map.and_then(|map| map.entry(protocol, port)))
    }

    /// Returns one port for each set of rules that covers ports of a destination. Named ports of
    /// the destination have entries of their own: a rule may cover them by name.
    pub(super) fn choices(
        &self,
        map: Option<&PortMap>,
        destination: Option<&Pod<'_>>,
    ) -> Vec<PortChoice> {
        let entries = map.map_or(&[][..], |map| &map.entries).iter();
        let named = entries.map(|entry| PortChoice {
            mask: self.of(entry.protocol, entry.port, map),
            traffic: Traffic::Port(entry.protocol, entry.port),
        });
        let mut choices: Vec<PortChoice> = named.collect();
        for (mask, atoms) in &self.distinct {
            if let Some(traffic) = self.pick(atoms, map, destination) {
                choices.push(PortChoice {
                    mask: mask.clone(),
                    traffic,
                });
            }
        }
        choices
    }

    /// Picks a port of these atoms without a name at the destination: a declared one, else a
    /// well-known one, else the first. `None` if all of their ports have names.
    fn pick(
        &self,
        atoms: &[u32],
        map: Option<&PortMap>,
        destination: Option<&Pod<'_>>,
    ) -> Option<Traffic> {
        let program_ports = &self.program.ports;
        let is_unnamed = |protocol, port| map.is_none_or(|it| it.entry(protocol, port).is_none());
        let fits = |protocol: Protocol, port: NonZeroU16| {
            let atom = program_ports.of(protocol, port.get());
            atoms.binary_search(&atom).is_ok() && is_unnamed(protocol, port)
        };
        let declared = destination.into_iter().flat_map(|pod| pod.ports.iter());
        let declared = declared.map(|it| (it.protocol, it.port));
        let familiar = FAMILIAR.into_iter();
        let familiar = familiar.filter_map(|(it, port)| Some((it, NonZeroU16::new(port)?)));
        let mut likely = declared.chain(familiar);
        if let Some((protocol, port)) = likely.find(|(protocol, port)| fits(*protocol, *port)) {
            return Some(Traffic::Port(protocol, port));
        }
        atoms.iter().find_map(|atom| {
            if *atom == program_ports.portless() {
                return Some(Traffic::Portless);
            }
            let (protocol, first, last) = self.range(*atom)?;
            // Ends at the first port without a name; a pod names only a few.
            let mut ports = (first..=last).filter_map(NonZeroU16::new);
            let port = ports.find(|port| is_unnamed(protocol, *port))?;
            Some(Traffic::Port(protocol, port))
        })
    }

    /// Returns the protocol of an atom, and its first and last port. Atoms are numbered by
    /// protocol, then port.
    fn range(&self, atom: u32) -> Option<(Protocol, u16, u16)> {
        let mut index = atom as usize;
        for protocol in Protocol::ALL {
            let starts = self.program.ports.starts(protocol);
            if let Some(first) = starts.get(index) {
                let last = starts.get(index + 1).map_or(u16::MAX, |next| next - 1);
                return Some((protocol, *first, last));
            }
            index -= starts.len();
        }
        None
    }
}
