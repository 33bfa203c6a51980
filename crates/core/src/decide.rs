//! Evaluates one flow: which rule decides, in each direction.
//!
//! Implements section 1.1 of the model (docs/reference/model.md) over the compiled form: no text,
//! no allocation. The cause is where the search ends, not a reconstruction.

use std::num::NonZeroU16;

use crate::id_set::{IdSet, has_bit, ones_from};
use crate::model::{NodeId, PodId};
use crate::net::Protocol;
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::policy_index::{PolicyIndex, entry, first_common};
use crate::program::{
    AddressAtom, Class, IsolationId, LONG_ROW, NONE, NamedPort, PortMapEntry, Program, Rows, Rule,
    RuleId, Table, direction_index, table_index,
};

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// The identity that selectors match.
    pub identity: Identity,
    /// The address that blocks match.
    pub address: AddressAtom,
}

/// The identity of an end of a flow (D22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A live pod with a network of its own, or a template.
    Pod(PodId),
    /// A node's network; the node, if its object is in the input.
    Node(Option<NodeId>),
    /// Outside the cluster.
    External,
}

/// The protocol and port of a flow, as rules see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    /// A protocol with ports, and the port at the destination after translation (D28).
    Port(Protocol, NonZeroU16),
    /// An IP protocol without ports: only rules without a filter match (D14).
    Portless,
    /// On-link control of IPv6, which policies never evaluate (D89).
    NeighborDiscovery,
}

/// One connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The end that opens the connection.
    pub source: FlowEnd,
    /// The end that receives it, after translation (D78).
    pub destination: FlowEnd,
    /// The protocol and port.
    pub traffic: Traffic,
    /// Whether a Service translated the flow; a pod that reaches itself is then evaluated (D77).
    pub via_service: bool,
    /// Whether the flow starts in the network of the destination's own node (D74).
    pub node_local: bool,
}

/// The causes of a flow's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The cause at the source.
    pub egress: Cause,
    /// The cause at the destination.
    pub ingress: Cause,
}

impl Decision {
    /// Returns Allow if both directions allow the flow (D1, D2).
    pub fn verdict(&self) -> Verdict {
        match (self.egress.verdict(), self.ingress.verdict()) {
            (Verdict::Allow, Verdict::Allow) => Verdict::Allow,
            (Verdict::Deny, _) | (_, Verdict::Deny) => Verdict::Deny,
        }
    }

    /// Returns the cause in a direction.
    pub fn cause(&self, direction: Direction) -> Cause {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// The reason for the verdict of one direction, with its rule or policies (D4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A rule of the Admin tier decided.
    AdminRule(Verdict, RuleId),
    /// A rule of a NetworkPolicy matched.
    NetworkPolicyRule(RuleId),
    /// NetworkPolicies isolate the pod, and none of their rules matches.
    Isolation(IsolationId),
    /// A rule of the Baseline tier decided.
    BaselineRule(Verdict, RuleId),
    /// DefaultNetworkPolicies isolate the pod, and none of their rules matches.
    DefaultIsolation(IsolationId),
    /// No policy decides: allowed.
    Default,
    /// Policies are not evaluated.
    Exempt(Exemption),
    /// The end is not a pod.
    NotApplicable(Absence),
}

impl Cause {
    /// Returns the verdict on the direction.
    pub fn verdict(self) -> Verdict {
        match self {
            Cause::AdminRule(verdict, _) | Cause::BaselineRule(verdict, _) => verdict,
            Cause::Isolation(_) | Cause::DefaultIsolation(_) => Verdict::Deny,
            Cause::NetworkPolicyRule(_)
            | Cause::Default
            | Cause::Exempt(_)
            | Cause::NotApplicable(_) => Verdict::Allow,
        }
    }

    /// Returns the rule, if one decided.
    pub fn rule(self) -> Option<RuleId> {
        match self {
            Cause::AdminRule(_, rule)
            | Cause::BaselineRule(_, rule)
            | Cause::NetworkPolicyRule(rule) => Some(rule),
            Cause::Isolation(_)
            | Cause::DefaultIsolation(_)
            | Cause::Default
            | Cause::Exempt(_)
            | Cause::NotApplicable(_) => None,
        }
    }
}

/// Why policies are not evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exemption {
    /// The packet replies on an accepted connection.
    Reply,
    /// The flow starts on the pod's own node (D74).
    NodeLocal,
    /// The pod reaches its own address (D76).
    SelfAddress,
    /// IPv6 neighbor discovery or a multicast listener message (D89).
    NeighborDiscovery,
}

/// Why an end is not a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// A host-network pod, which the query names (D138).
    HostNetwork,
    /// A node, or the address of one.
    Node,
    /// Outside the cluster.
    External,
}

impl Program {
    /// Evaluates a flow, always in both directions (D1).
    pub fn decide(&self, flow: &Flow) -> Decision {
        if flow.traffic == Traffic::NeighborDiscovery {
            let exempt = Cause::Exempt(Exemption::NeighborDiscovery);
            return Decision {
                egress: exempt,
                ingress: exempt,
            };
        }
        if let (Identity::Pod(source), Identity::Pod(destination)) =
            (flow.source.identity, flow.destination.identity)
            && source == destination
            && !flow.via_service
        {
            let exempt = Cause::Exempt(Exemption::SelfAddress);
            return Decision {
                egress: exempt,
                ingress: exempt,
            };
        }
        // Both directions need the classes and the port: resolved once.
        let ends = self.flow_ends(flow);
        self.prefetch(&ends);
        let direction = |direction| match self.view_of(flow, &ends, direction) {
            Ok(view) => self.evaluate(&view, &mut ()),
            Err(absence) => Cause::NotApplicable(absence),
        };
        let ingress = match flow.destination.identity {
            // Node-local traffic is exempt from ingress only (D74). Its egress side is a node.
            Identity::Pod(_) if flow.node_local => Cause::Exempt(Exemption::NodeLocal),
            Identity::Pod(_) | Identity::Node(_) | Identity::External => {
                direction(Direction::Ingress)
            }
        };
        Decision {
            egress: direction(Direction::Egress),
            ingress,
        }
    }

    /// Evaluates a flow in one direction, without the exemptions.
    pub fn direction(&self, flow: &Flow, direction: Direction) -> Cause {
        match self.view(flow, direction) {
            Ok(view) => self.evaluate(&view, &mut ()),
            Err(absence) => Cause::NotApplicable(absence),
        }
    }

    /// Returns the flow as the subject of a direction sees it.
    pub(crate) fn view(&self, flow: &Flow, direction: Direction) -> Result<FlowView<'_>, Absence> {
        self.view_of(flow, &self.flow_ends(flow), direction)
    }

    fn flow_ends(&self, flow: &Flow) -> FlowEnds<'_> {
        let class = |end: FlowEnd| match end.identity {
            Identity::Pod(pod) => self.class(pod),
            Identity::Node(_) | Identity::External => None,
        };
        let (source, destination) = (class(flow.source), class(flow.destination));
        let (port, named) = match flow.traffic {
            Traffic::Port(protocol, port) => {
                // The destination's names count in both directions (D28, D33).
                let map = destination.and_then(|class| self.port_map(class));
                let named = map.and_then(|map| map.entry(protocol, port));
                (self.ports.of(protocol, port.get()), named)
            }
            Traffic::Portless | Traffic::NeighborDiscovery => (self.ports.portless(), None),
        };
        FlowEnds {
            source,
            destination,
            port,
            named,
        }
    }

    /// Touches the rows that both directions begin with. In a large cluster cache misses are most
    /// of the cost of a verdict; these loads are independent and overlap.
    fn prefetch(&self, ends: &FlowEnds<'_>) {
        let (Some(source), Some(destination)) = (ends.source, ends.destination) else {
            return;
        };
        for (direction, subject, peer) in [
            (Direction::Ingress, destination, source),
            (Direction::Egress, source, destination),
        ] {
            let table = self.table(Tier::Admin, direction);
            let index = table_index(Tier::Admin, direction);
            let first = |rows: &Rows, of: &[u32; 4]| {
                let row = of.get(index).copied().unwrap_or(0);
                rows.row(row).first().copied()
            };
            // The result is not used: `black_box` keeps the compiler from removing the load.
            std::hint::black_box(first(&table.subjects, &subject.subject_rows));
            std::hint::black_box(first(&table.peers, &peer.peer_rows));
        }
    }

    fn view_of<'p>(
        &self,
        flow: &Flow,
        ends: &FlowEnds<'p>,
        direction: Direction,
    ) -> Result<FlowView<'p>, Absence> {
        let (subject, peer, subject_class, class) = match direction {
            Direction::Ingress => (flow.destination, flow.source, ends.destination, ends.source),
            Direction::Egress => (flow.source, flow.destination, ends.source, ends.destination),
        };
        let subject = match subject.identity {
            // A pod without a class is in its node's network (D73).
            Identity::Pod(_) => subject_class.ok_or(Absence::HostNetwork)?,
            Identity::Node(_) => return Err(Absence::Node),
            Identity::External => return Err(Absence::External),
        };
        let node = match peer.identity {
            Identity::Node(node) => node,
            Identity::Pod(_) | Identity::External => None,
        };
        Ok(FlowView {
            direction,
            subject,
            class,
            node,
            address: peer.address,
            port: ends.port,
            named: ends.named,
        })
    }

    /// Evaluates the three tiers and the default (1.1).
    pub(crate) fn evaluate(&self, view: &FlowView<'_>, observer: &mut impl PassObserver) -> Cause {
        if let Some((_, rule, action)) = self.first_match(Tier::Admin, view) {
            match action {
                Action::Accept => return Cause::AdminRule(Verdict::Allow, rule),
                Action::Deny => return Cause::AdminRule(Verdict::Deny, rule),
                // Pass ends the tier, not the evaluation (D10).
                Action::Pass => observer.passed(rule),
            }
        }
        if let Some(cause) = self.union(view) {
            return cause;
        }
        self.baseline(view, observer)
    }

    /// Evaluates the NetworkPolicy tier; `None`: the pod is not isolated in this direction (D12).
    fn union(&self, view: &FlowView<'_>) -> Option<Cause> {
        let index = direction_index(view.direction);
        let id = view.subject.unions.get(index).copied()?;
        // `NONE` is past the end of the list: the pod is not isolated.
        let union = self.unions.get(index)?.get(id as usize)?;
        let matching = match self.policy_indexes.get(union.index as usize) {
            Some(policy_index) => self.first_indexed(policy_index, &union.selected, view),
            None => {
                let mut rules = union.rules.iter().copied();
                rules.find(|id| self.is_matched_by(*id, view))
            }
        };
        Some(match matching {
            Some(rule) => Cause::NetworkPolicyRule(rule),
            None => Cause::Isolation(union.isolation),
        })
    }

    fn is_matched_by(&self, id: RuleId, view: &FlowView<'_>) -> bool {
        let rule = self.rules.get(id.0 as usize);
        rule.is_some_and(|rule| self.matches(rule, view))
    }

    /// Returns the first of the selected rules of an index that matches.
    fn first_indexed(
        &self,
        index: &PolicyIndex,
        selected: &[u64],
        view: &FlowView<'_>,
    ) -> Option<RuleId> {
        // A rule matches if one of the port sets and one of the peer sets below contain it. Places
        // are in order of precedence (D137): `best` is the smallest place found so far and only
        // falls, and every search ends at it.
        let mut best = NONE;
        let names = view.named.into_iter().flat_map(|entry| {
            let protocols = [None, Some(entry.protocol)];
            let names = entry.names.iter();
            names.flat_map(move |name| {
                protocols.map(|protocol| NamedPort {
                    name: *name,
                    protocol,
                })
            })
        });
        let named = names.filter_map(|name| entry(&index.names, &name));
        let ports = index.any_port.iter().chain(index.ports.at(view.port));
        for ports in ports.chain(named) {
            match ports {
                // Few rules name this port: evaluating each is cheaper than an intersection with
                // every set of peers.
                IdSet::Few(places) => {
                    let places = places.iter().take_while(|place| **place < best);
                    let mut selected = places.filter(|place| has_bit(selected, **place));
                    let matching = selected.find(|place| {
                        let id = index.rules.get(**place as usize);
                        id.is_some_and(|id| self.is_matched_by(*id, view))
                    });
                    best = matching.copied().unwrap_or(best);
                }
                IdSet::Many(ports) => {
                    let peers = index.any_peer.iter();
                    for peers in peers.chain(index.addresses.at(view.address.0)) {
                        best = first_common(selected, ports, peers, best);
                    }
                    // Only pods are in pod sets. Rules with nodes as peers are never indexed.
                    let Some(class) = view.class else { continue };
                    let narrow = self.narrow_sets(class).iter();
                    for peers in narrow.filter_map(|set| entry(&index.narrow, set)) {
                        best = first_common(selected, ports, peers, best);
                    }
                    let wide = self.wide.row(class.id).iter().zip(&index.wide_mask);
                    for (word, (bits, mask)) in (0..).zip(wide) {
                        let columns = ones_from(word * 64, bits & mask);
                        for peers in columns.filter_map(|column| entry(&index.wide, &column)) {
                            best = first_common(selected, ports, peers, best);
                        }
                    }
                }
            }
        }
        index.rules.get(best as usize).copied()
    }

    fn baseline(&self, view: &FlowView<'_>, observer: &mut impl PassObserver) -> Cause {
        let index = direction_index(view.direction);
        let isolation = view.subject.default_isolations.get(index);
        let isolation = isolation.copied().filter(|id| *id != NONE);
        let table = self.table(Tier::Baseline, view.direction);
        let found = self.first_match(Tier::Baseline, view);
        match (found, isolation) {
            // Rules behind the default policies do not apply to pods that these isolate (D62).
            (Some((bit, ..)), Some(isolation)) if bit >= table.group_end => {
                Cause::DefaultIsolation(IsolationId(isolation))
            }
            (Some((_, rule, Action::Accept)), _) => Cause::BaselineRule(Verdict::Allow, rule),
            (Some((_, rule, Action::Deny)), _) => Cause::BaselineRule(Verdict::Deny, rule),
            (Some((_, rule, Action::Pass)), _) => {
                observer.passed(rule);
                Cause::Default
            }
            (None, None) => Cause::Default,
            (None, Some(isolation)) => Cause::DefaultIsolation(IsolationId(isolation)),
        }
    }

    pub(crate) fn table(&self, tier: Tier, direction: Direction) -> &Table {
        let [
            admin_ingress,
            admin_egress,
            baseline_ingress,
            baseline_egress,
        ] = &self.tables;
        match (tier, direction) {
            (Tier::Admin, Direction::Ingress) => admin_ingress,
            (Tier::Admin, Direction::Egress) => admin_egress,
            (Tier::Baseline, Direction::Ingress) => baseline_ingress,
            (Tier::Baseline, Direction::Egress) => baseline_egress,
        }
    }

    /// Returns the first rule of a tier that matches: its bit, the rule and its action.
    fn first_match(&self, tier: Tier, view: &FlowView<'_>) -> Option<(u32, RuleId, Action)> {
        let table = self.table(tier, view.direction);
        let index = table_index(tier, view.direction);
        let row = |rows: Option<&u32>| rows.copied().unwrap_or(0);
        let subject_row = view.subject.subject_rows.get(index).copied()?;
        // Row 0 has no bit: no policy of the tier selects the subject.
        if subject_row == 0 {
            return None;
        }
        let class_row = row(view.class.and_then(|class| class.peer_rows.get(index)));
        let address_row = row(table.address_rows.get(view.address.0 as usize));
        let node_row = view
            .node
            .and_then(|node| table.node_rows.get(node.0 as usize));
        let node_row = row(node_row);
        let port_row = row(table.port_rows.get(view.port as usize));
        let named_row = view.named.map(|entry| entry.number as usize);
        let named_row = row(named_row.and_then(|number| table.named_rows.get(number)));
        let rows = [
            table.subjects.row(subject_row),
            table.peers.row(class_row),
            table.addresses.row(address_row),
            table.nodes.row(node_row),
            table.ports.row(port_row),
            table.named.row(named_row),
        ];
        // Three paths give the same result. Rows of up to 2,048 rules are read from end to end,
        // mostly with four rows in the loop instead of six. Longer rows are read by their
        // summaries: a word can have a common bit only if all summaries have the word's bit.
        if table.subjects.words <= LONG_ROW && node_row == 0 && named_row == 0 {
            // The common case: the peer is not a node and the port has no name. Row 0 has no bit:
            // both rows can be left out, for two thirds of the loads.
            let [subjects, classes, addresses, _, ports, _] = rows;
            let words = subjects.iter().zip(classes).zip(addresses).zip(ports);
            for (word, (((subject, class), address), port)) in words.enumerate() {
                let bits = subject & (class | address) & port;
                if bits != 0
                    && let Some(found) = self.first_of_word(table, word, bits, view)
                {
                    return Some(found);
                }
            }
            return None;
        }
        if table.subjects.words <= LONG_ROW {
            let mut found = conjunction(rows).enumerate().filter(|(_, bits)| *bits != 0);
            return found.find_map(|(word, bits)| self.first_of_word(table, word, bits, view));
        }
        let summaries = conjunction([
            table.subjects.summary(subject_row),
            table.peers.summary(class_row),
            table.addresses.summary(address_row),
            table.nodes.summary(node_row),
            table.ports.summary(port_row),
            table.named.summary(named_row),
        ]);
        let words = (0_u32..).step_by(64).zip(summaries);
        let mut words = words.flat_map(|(start, summary)| ones_from(start, summary));
        words.find_map(|word| {
            let word = word as usize;
            let of_word = rows.map(|row| row.get(word..=word).unwrap_or_default());
            let bits = conjunction(of_word).next()?;
            self.first_of_word(table, word, bits, view)
        })
    }

    /// Returns the first rule that matches among some bits of a word.
    fn first_of_word(
        &self,
        table: &Table,
        word: usize,
        mut bits: u64,
        view: &FlowView<'_>,
    ) -> Option<(u32, RuleId, Action)> {
        while bits != 0 {
            let bit = word * 64 + bits.trailing_zeros() as usize;
            let id = table.rules.get(bit)?;
            // The row of a peer has a relative rule's bit if any subject could have the relation to
            // it. Whether this subject has it is evaluated on the rule. The whole rule is
            // evaluated, since another of its peers may match without a relation.
            let relative = table.relative.get(word).copied().unwrap_or(0);
            let relative = relative & (bits & bits.wrapping_neg()) != 0;
            if !relative || self.is_matched_by(*id, view) {
                let action = table.actions.get(bit)?;
                return Some((u32::try_from(bit).unwrap_or(NONE), *id, *action));
            }
            bits &= bits - 1;
        }
        None
    }

    /// Returns whether a rule matches, from the rule itself instead of rows.
    pub(crate) fn matches(&self, rule: &Rule, view: &FlowView<'_>) -> bool {
        self.port_matches(rule, view) && self.peer_matches(rule, view)
    }

    pub(crate) fn port_matches(&self, rule: &Rule, view: &FlowView<'_>) -> bool {
        if rule.any_port {
            return true;
        }
        let within = |(start, end): &(u32, u32)| (*start..*end).contains(&view.port);
        // The bit excludes most ports without a read of the list in another cache line.
        if rule.port_bits >> (view.port % 64) & 1 != 0
            && rule.ports.of(&self.lists.ports).iter().any(within)
        {
            return true;
        }
        let Some(entry) = view.named else {
            return false;
        };
        rule.names.of(&self.lists.names).iter().any(|named| {
            entry.names.contains(&named.name)
                && named.protocol.is_none_or(|it| it == entry.protocol)
        })
    }

    pub(crate) fn peer_matches(&self, rule: &Rule, view: &FlowView<'_>) -> bool {
        if rule.any_peer {
            return true;
        }
        let address = view.address.0;
        let within = |(start, end): &(u32, u32)| (*start..*end).contains(&address);
        // Blocks match any identity by address alone, pods and nodes too (D44).
        if rule.blocks.of(&self.lists.blocks).iter().any(within) {
            return true;
        }
        if let Some(peer) = view.class {
            return rule.sets.of(&self.lists.sets).iter().any(|set| {
                self.is_in(peer, *set) && self.relation_holds(*set, view.subject, peer)
            });
        }
        if let Some(node) = view.node {
            return rule.nodes.of(&self.lists.nodes).iter().any(|set| {
                let nodes = self.node_sets.get(*set as usize);
                nodes.is_some_and(|nodes| nodes.binary_search(&node).is_ok())
            });
        }
        false
    }

    fn relation_holds(&self, set: u32, subject: &Class, peer: &Class) -> bool {
        match self.set_relations.get(set as usize).copied().flatten() {
            None => true,
            Some(relation) => self
                .relations
                .get(relation as usize)
                .is_some_and(|it| it.holds(subject.namespace, peer.namespace)),
        }
    }
}

/// Combines rows of subject, class, address, node, port and name into the rules that select the
/// subject, match the peer by one of its properties, and match the port by number or name.
fn conjunction(
    [subjects, classes, addresses, nodes, ports, named]: [&[u64]; 6],
) -> impl Iterator<Item = u64> {
    let words = subjects.iter().zip(classes).zip(addresses).zip(nodes);
    let words = words.zip(ports).zip(named);
    words.map(|(((((subject, class), address), node), port), named)| {
        subject & (class | address | node) & (port | named)
    })
}

/// Receives the rules that match with Pass. The fast path needs none of them.
pub(crate) trait PassObserver {
    fn passed(&mut self, rule: RuleId);
}

impl PassObserver for () {
    fn passed(&mut self, _: RuleId) {}
}

impl PassObserver for Vec<RuleId> {
    fn passed(&mut self, rule: RuleId) {
        self.push(rule);
    }
}

/// The lookups of a flow that both directions use.
struct FlowEnds<'p> {
    source: Option<&'p Class>,
    destination: Option<&'p Class>,
    port: u32,
    /// The names that the port has at the destination.
    named: Option<&'p PortMapEntry>,
}

/// A flow as the subject of one direction sees it.
#[derive(Debug)]
pub(crate) struct FlowView<'p> {
    pub(crate) direction: Direction,
    pub(crate) subject: &'p Class,
    /// The peer's class, if it is a pod.
    pub(crate) class: Option<&'p Class>,
    /// The peer, if it is a node whose object is in the input.
    pub(crate) node: Option<NodeId>,
    /// The peer's address.
    pub(crate) address: AddressAtom,
    pub(crate) port: u32,
    /// The names that the port has at the destination.
    pub(crate) named: Option<&'p PortMapEntry>,
}

#[cfg(test)]
mod tests;
