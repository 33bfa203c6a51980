//! One verdict: which rule decides, in each direction.
//!
//! This is section 1.1 of the model (docs/model.md) over the compiled form: no text, no allocation,
//! and the cause is what the search ends on, not a story told afterwards.

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
    /// Who it is.
    pub identity: Identity,
    /// Its address.
    pub address: AddressAtom,
}

/// Who an end of a flow is (D22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A live pod with a network of its own, or a template.
    Pod(PodId),
    /// A node's network; which node, if that object was given.
    Node(Option<NodeId>),
    /// Someone outside the cluster.
    External,
}

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    /// A protocol with ports, and the port at the destination after translation (D28).
    Port(Protocol, NonZeroU16),
    /// An IP protocol without ports: only rules without a filter match it (D14).
    Portless,
    /// On-link control of IPv6, which no policy is about (D89).
    NeighborDiscovery,
}

/// One attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where it starts.
    pub source: FlowEnd,
    /// Where it ends, after translation (D78).
    pub destination: FlowEnd,
    /// What it carries.
    pub traffic: Traffic,
    /// Whether it went through a Service, so that a pod may meet itself as another (D77).
    pub via_service: bool,
    /// Whether it started in the network of the destination's own node (D74).
    pub node_local: bool,
}

/// What becomes of a flow, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// At the source.
    pub egress: Cause,
    /// At the destination.
    pub ingress: Cause,
}

impl Decision {
    /// Both directions must allow it (D1, D2).
    pub fn verdict(&self) -> Verdict {
        match (self.egress.verdict(), self.ingress.verdict()) {
            (Verdict::Allow, Verdict::Allow) => Verdict::Allow,
            (Verdict::Deny, _) | (_, Verdict::Deny) => Verdict::Deny,
        }
    }

    /// The cause in a direction.
    pub fn cause(&self, direction: Direction) -> Cause {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// What settled one direction (D4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A rule of the Admin tier.
    AdminRule(Verdict, RuleId),
    /// A rule of a NetworkPolicy.
    NetworkPolicyRule(RuleId),
    /// NetworkPolicies isolate the pod, and none of their rules matches.
    Isolation(IsolationId),
    /// A rule of the Baseline tier.
    BaselineRule(Verdict, RuleId),
    /// Default policies isolate the pod, and none of their rules matches.
    DefaultIsolation(IsolationId),
    /// Nothing decides, so it is allowed.
    Default,
    /// No policy may decide.
    Exempt(Exemption),
    /// The end is not a pod.
    NotApplicable(Absence),
}

impl Cause {
    /// What it means for the direction.
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

    /// The rule, if one decided.
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

/// Why no policy may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exemption {
    /// It answers an accepted connection.
    Reply,
    /// It comes from the pod's own node (D74).
    NodeLocal,
    /// A pod talks to its own address (D76).
    SelfAddress,
    /// It keeps the link working (D89).
    NeighborDiscovery,
}

/// Why an end is not a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// It is a pod in its node's network, asked for by name (D138).
    HostNetwork,
    /// It is a node.
    Node,
    /// It is outside the cluster.
    External,
}

impl Program {
    /// Decides a flow. Both directions are always decided (D1).
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
        // What both directions need is looked up once.
        let ends = self.ends(flow);
        self.fetch(&ends);
        let direction = |direction| match self.seen_from(flow, &ends, direction) {
            Ok(view) => self.evaluate(&view, &mut ()),
            Err(absence) => Cause::NotApplicable(absence),
        };
        let ingress = match flow.destination.identity {
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

    /// Decides a flow in one direction, exemptions aside.
    pub fn direction(&self, flow: &Flow, direction: Direction) -> Cause {
        match self.view(flow, direction) {
            Ok(view) => self.evaluate(&view, &mut ()),
            Err(absence) => Cause::NotApplicable(absence),
        }
    }

    /// The flow as the end sees it that the direction is about.
    pub(crate) fn view(&self, flow: &Flow, direction: Direction) -> Result<FlowView<'_>, Absence> {
        self.seen_from(flow, &self.ends(flow), direction)
    }

    fn ends(&self, flow: &Flow) -> FlowEnds<'_> {
        let class = |party: FlowEnd| match party.identity {
            Identity::Pod(pod) => self.class(pod),
            Identity::Node(_) | Identity::External => None,
        };
        let (source, destination) = (class(flow.source), class(flow.destination));
        let (port, named) = match flow.traffic {
            Traffic::Port(protocol, port) => {
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

    /// Touches the rows that both directions begin with. What memory takes to answer is most of a
    /// verdict in a large cluster, and it can answer all of these at once.
    fn fetch(&self, ends: &FlowEnds<'_>) {
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
            std::hint::black_box(first(&table.subjects, &subject.subject_rows));
            std::hint::black_box(first(&table.peers, &peer.peer_rows));
        }
    }

    fn seen_from<'p>(
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

    /// The three tiers and the default (1.1).
    pub(crate) fn evaluate(&self, view: &FlowView<'_>, witness: &mut impl PassObserver) -> Cause {
        if let Some((_, rule, action)) = self.first_match(Tier::Admin, view) {
            match action {
                Action::Accept => return Cause::AdminRule(Verdict::Allow, rule),
                Action::Deny => return Cause::AdminRule(Verdict::Deny, rule),
                Action::Pass => witness.passed(rule),
            }
        }
        if let Some(cause) = self.union(view) {
            return cause;
        }
        self.baseline(view, witness)
    }

    /// The NetworkPolicy stage; `None`: the pod is not isolated in this direction (D12).
    fn union(&self, view: &FlowView<'_>) -> Option<Cause> {
        let index = direction_index(view.direction);
        let id = view.subject.unions.get(index).copied()?;
        let union = self.unions.get(index)?.get(id as usize)?;
        let matching = match self.stages.get(union.index as usize) {
            Some(stage) => self.first_indexed(stage, &union.selected, view),
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

    /// The first of the selected rules of a stage that matches.
    fn first_indexed(
        &self,
        stage: &PolicyIndex,
        selected: &[u64],
        view: &FlowView<'_>,
    ) -> Option<RuleId> {
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
        let named = names.filter_map(|name| entry(&stage.names, &name));
        let ports = stage.any_port.iter().chain(stage.ports.at(view.port));
        for ports in ports.chain(named) {
            match ports {
                // Of few rules each can be asked.
                IdSet::Few(places) => {
                    let places = places.iter().take_while(|place| **place < best);
                    let mut selected = places.filter(|place| has_bit(selected, **place));
                    let matching = selected.find(|place| {
                        let id = stage.rules.get(**place as usize);
                        id.is_some_and(|id| self.is_matched_by(*id, view))
                    });
                    best = matching.copied().unwrap_or(best);
                }
                IdSet::Many(ports) => {
                    let peers = stage.any_peer.iter();
                    for peers in peers.chain(stage.addresses.at(view.address.0)) {
                        best = first_common(selected, ports, peers, best);
                    }
                    let Some(class) = view.class else { continue };
                    let narrow = self.narrow_sets(class).iter();
                    for peers in narrow.filter_map(|set| entry(&stage.narrow, set)) {
                        best = first_common(selected, ports, peers, best);
                    }
                    let wide = self.wide.row(class.id).iter().zip(&stage.wide_mask);
                    for (word, (bits, mask)) in (0..).zip(wide) {
                        let columns = ones_from(word * 64, bits & mask);
                        for peers in columns.filter_map(|column| entry(&stage.wide, &column)) {
                            best = first_common(selected, ports, peers, best);
                        }
                    }
                }
            }
        }
        stage.rules.get(best as usize).copied()
    }

    fn baseline(&self, view: &FlowView<'_>, witness: &mut impl PassObserver) -> Cause {
        let index = direction_index(view.direction);
        let isolation = view.subject.default_isolations.get(index);
        let isolation = isolation.copied().filter(|id| *id != NONE);
        let table = self.table(Tier::Baseline, view.direction);
        let found = self.first_match(Tier::Baseline, view);
        match (found, isolation) {
            // Whatever stands behind the default policies is not for pods that they isolate (D62).
            (Some((bit, ..)), Some(isolation)) if bit >= table.group_end => {
                Cause::DefaultIsolation(IsolationId(isolation))
            }
            (Some((_, rule, Action::Accept)), _) => Cause::BaselineRule(Verdict::Allow, rule),
            (Some((_, rule, Action::Deny)), _) => Cause::BaselineRule(Verdict::Deny, rule),
            (Some((_, rule, Action::Pass)), _) => {
                witness.passed(rule);
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

    /// The first rule of a tier that matches: its bit, the rule and its action.
    fn first_match(&self, tier: Tier, view: &FlowView<'_>) -> Option<(u32, RuleId, Action)> {
        let table = self.table(tier, view.direction);
        let index = table_index(tier, view.direction);
        let row = |rows: Option<&u32>| rows.copied().unwrap_or(0);
        let subject_row = view.subject.subject_rows.get(index).copied()?;
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
        if table.subjects.words <= LONG_ROW && node_row == 0 && named_row == 0 {
            // Most peers are no nodes, and most ports have no names: these rows are empty.
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

    /// The first rule of some bits of a word that matches, each peer's relation to the subject
    /// included.
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

    /// Whether a rule matches, asked of the rule itself.
    pub(crate) fn matches(&self, rule: &Rule, view: &FlowView<'_>) -> bool {
        self.port_matches(rule, view) && self.peer_matches(rule, view)
    }

    pub(crate) fn port_matches(&self, rule: &Rule, view: &FlowView<'_>) -> bool {
        if rule.any_port {
            return true;
        }
        let within = |(start, end): &(u32, u32)| (*start..*end).contains(&view.port);
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

/// The rules on the subject that are for the peer, whoever it is, and for the port, whatever it is
/// called: rows of subject, class, address, node, port and name.
fn conjunction(
    [subjects, classes, addresses, nodes, ports, named]: [&[u64]; 6],
) -> impl Iterator<Item = u64> {
    let words = subjects.iter().zip(classes).zip(addresses).zip(nodes);
    let words = words.zip(ports).zip(named);
    words.map(|(((((subject, class), address), node), port), named)| {
        subject & (class | address | node) & (port | named)
    })
}

/// Who is told of the rules that passed the flow on. The fast path has nobody to tell.
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

/// What both directions need of a flow.
struct FlowEnds<'p> {
    source: Option<&'p Class>,
    destination: Option<&'p Class>,
    port: u32,
    /// The names that the port has at the destination.
    named: Option<&'p PortMapEntry>,
}

/// A flow as one end sees it. Nothing below it knows which end that is, but for the table.
#[derive(Debug)]
pub(crate) struct FlowView<'p> {
    pub(crate) direction: Direction,
    pub(crate) subject: &'p Class,
    /// The peer, if it is a pod.
    pub(crate) class: Option<&'p Class>,
    /// The peer, if it is a node that was given.
    pub(crate) node: Option<NodeId>,
    /// The peer's address.
    pub(crate) address: AddressAtom,
    pub(crate) port: u32,
    /// The names that the port has at the destination.
    pub(crate) named: Option<&'p PortMapEntry>,
}
