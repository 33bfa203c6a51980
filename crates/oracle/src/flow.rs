//! Single flows: their families, possible addresses, and how their answers are combined.

use crate::cidr;
use crate::eval::Oracle;
use crate::query::{End, FAMILIES, QueryPort, Target, Via, Who, named};
use crate::rule::{Direction, Flow, Identity, L4};
use crate::world::Pod;
use crate::{Answer, Detail, Family, Reason, Side, SideVerdict, Verdict};
use std::net::IpAddr;

fn plain(verdict: SideVerdict, reason: Reason, detail: Detail) -> Side {
    Side {
        verdict,
        reason: Some(reason),
        detail: Some(detail),
        rule: None,
        policies: Vec::new(),
    }
}

fn exempt(detail: Detail) -> Side {
    plain(SideVerdict::Exempt, Reason::Exempt, detail)
}

impl End<'_> {
    fn not_applicable(&self) -> Side {
        let detail = match &self.who {
            Who::Node { detail, .. } => *detail,
            Who::Pod(_) | Who::External | Who::Loopback(_) => Detail::External,
        };
        plain(SideVerdict::NotApplicable, Reason::NotApplicable, detail)
    }
}

impl Oracle {
    /// The single flows of a pair: one for each family that both have (D132); a single one if an
    /// endpoint has no address.
    pub(crate) fn singles(
        &self,
        s: &End<'_>,
        t: &Target<'_>,
        l4: L4,
        icmp: Option<Family>,
        via: &Via<'_>,
        out: &mut Vec<Answer>,
    ) {
        let possible = |f: &Family| {
            t.families[*f as usize]
                && icmp.is_none_or(|i| i == *f)
                && (s.unknown() || s.address(*f).is_some())
                && (t.end.unknown() || t.end.address(*f).is_some())
        };
        let local = match (&s.who, &t.end.who, via) {
            (
                Who::Node {
                    host_of: Some(n), ..
                },
                Who::Pod(p),
                Via::Nothing | Via::Service,
            ) => {
                // D74; D135: a pod without a node is local to none.
                p.node.as_deref() == Some(*n)
            }
            _ => false,
        };
        // A node without an address: only node-local flows can be evaluated.
        if local && s.addresses == [None, None] {
            for f in FAMILIES {
                if t.families[f as usize]
                    && icmp.is_none_or(|i| i == f)
                    && t.end.address(f).is_some()
                {
                    out.push(self.single(s, t, l4, &[f], true, None));
                }
            }
            if t.end.unknown() {
                out.push(self.single(s, t, l4, &FAMILIES, true, None));
            }
            return;
        }
        let families: Vec<Family> = FAMILIES.into_iter().filter(possible).collect();
        // D79: the source that the destination sees.
        let seen = match via {
            Via::Node(n) if matches!(t.end.who, Who::Pod(_)) && t.node.as_deref() != Some(*n) => {
                Some(End {
                    label: String::new(),
                    who: Who::Node {
                        detail: Detail::Node,
                        host_of: None,
                        named: self.world.node(n).into_iter().collect(),
                    },
                    addresses: self.node_addresses(n),
                })
            }
            Via::Nothing | Via::Node(_) | Via::Service => None,
        };
        let seen = seen.as_ref();
        let visible = |f: &Family| seen.is_none_or(|n| n.address(*f).is_some());
        let families: Vec<Family> = families.into_iter().filter(visible).collect();
        if s.unknown() || t.end.unknown() {
            if !families.is_empty() {
                out.push(self.single(s, t, l4, &families, local, seen));
            }
            return;
        }
        for f in families {
            out.push(self.single(s, t, l4, &[f], local, seen));
        }
    }

    /// `verdict(flow)` of section 1.1, over every possible address (D136).
    fn single(
        &self,
        s: &End<'_>,
        t: &Target<'_>,
        l4: L4,
        families: &[Family],
        local: bool,
        seen: Option<&End<'_>>,
    ) -> Answer {
        let mut sides: (Vec<Side>, Vec<Side>) = (Vec::new(), Vec::new());
        let mut denials = Vec::new();
        let seen = seen.unwrap_or(s);
        for f in families {
            let (egress, ingress) = match (&s.who, &t.end.who) {
                // D76, D77; another pod of the same template is another pod.
                (Who::Pod(a), Who::Pod(b))
                    if std::ptr::eq(*a, *b) && !a.template && !t.translated =>
                {
                    let side = exempt(Detail::SelfAddress);
                    (vec![side.clone()], vec![side])
                }
                _ => {
                    let target = match t.end.who {
                        Who::Pod(p) => Some(p),
                        Who::Node { .. } | Who::External | Who::Loopback(_) => None,
                    };
                    let egress = match s.who {
                        Who::Pod(p) => self.possible(Direction::Egress, p, &t.end, target, l4, *f),
                        Who::Node { .. } | Who::External | Who::Loopback(_) => {
                            vec![s.not_applicable()]
                        }
                    };
                    let ingress = match t.end.who {
                        Who::Pod(_) if local => vec![exempt(Detail::NodeLocal)],
                        Who::Pod(p) => self.possible(Direction::Ingress, p, seen, Some(p), l4, *f),
                        Who::Node { .. } | Who::External | Who::Loopback(_) => {
                            vec![t.end.not_applicable()]
                        }
                    };
                    (egress, ingress)
                }
            };
            for e in &egress {
                for i in &ingress {
                    denials.push(e.verdict == SideVerdict::Deny || i.verdict == SideVerdict::Deny);
                }
            }
            sides.0.extend(egress);
            sides.1.extend(ingress);
        }
        let verdict = match (denials.contains(&true), denials.contains(&false)) {
            (true, false) => Verdict::Deny,
            (true, true) => Verdict::Unknown,
            (false, _) => Verdict::Allow,
        };
        let known = s.addresses != [None, None] && t.end.addresses != [None, None];
        Answer {
            verdict,
            error: false,
            family: families.first().copied().filter(|_| known),
            source: s.label.clone(),
            destination: t.end.label.clone(),
            egress: one_side(&sides.0.iter().collect::<Vec<_>>(), SideVerdict::Unknown),
            ingress: one_side(&sides.1.iter().collect::<Vec<_>>(), SideVerdict::Unknown),
            answers: Vec::new(),
        }
    }

    /// The outcomes of a direction for each possible address of the peer.
    fn possible(
        &self,
        direction: Direction,
        subject: &Pod,
        other: &End<'_>,
        target: Option<&Pod>,
        l4: L4,
        family: Family,
    ) -> Vec<Side> {
        let peer = match &other.who {
            Who::Pod(p) => Identity::Pod(p),
            Who::Node { named, .. } => Identity::Node(named),
            Who::External | Who::Loopback(_) => Identity::External,
        };
        let eval = |address: IpAddr| {
            let flow = Flow {
                subject,
                peer: &peer,
                address,
                target,
                l4,
            };
            self.eval(direction, &flow)
        };
        if let Some(a) = other.address(family) {
            return vec![eval(a)];
        }
        let mut out: Vec<Side> = Vec::new();
        for a in self
            .candidates
            .iter()
            .filter(|a| cidr::family(**a) == family)
        {
            let side = eval(*a);
            if !out.contains(&side) {
                out.push(side);
            }
        }
        out
    }
}

/// D139: a pod's loopback is the pod itself, a node's is not applicable, any other is an error.
pub(crate) fn loopback(
    s: &End<'_>,
    t: &End<'_>,
    family: Family,
    port: &QueryPort<'_>,
    icmp: Option<Family>,
) -> Option<Option<Answer>> {
    if icmp.is_some_and(|i| i != family) {
        return Some(None);
    }
    let pod = match s.who {
        Who::Pod(p) => Some(p),
        Who::Node { .. } => None,
        Who::External | Who::Loopback(_) => return None,
    };
    if let QueryPort::Name(protocol, name) = port
        && pod.is_none_or(|p| named(p, *protocol, name).is_empty())
    {
        return Some(None);
    }
    let side = match pod {
        Some(_) => exempt(Detail::SelfAddress),
        None => s.not_applicable(),
    };
    Some(Some(Answer {
        verdict: Verdict::Allow,
        error: false,
        family: Some(family).filter(|_| !s.unknown()),
        source: s.label.clone(),
        destination: t.label.clone(),
        egress: Some(side.clone()),
        ingress: Some(side),
        answers: Vec::new(),
    }))
}

/// The common part of several outcomes of a direction; `differ` where the verdicts differ.
fn one_side(sides: &[&Side], differ: SideVerdict) -> Option<Side> {
    let first = sides.first()?;
    let same = |eq: &dyn Fn(&Side) -> bool| sides.iter().all(|s| eq(s));
    Some(Side {
        verdict: if same(&|s| s.verdict == first.verdict) {
            first.verdict
        } else {
            differ
        },
        reason: first.reason.filter(|_| same(&|s| s.reason == first.reason)),
        detail: first.detail.filter(|_| same(&|s| s.detail == first.detail)),
        rule: first
            .rule
            .clone()
            .filter(|_| same(&|s| s.rule == first.rule)),
        // Without a common reason, detail and policies have no common meaning.
        policies: if same(&|s| s.reason == first.reason && s.policies == first.policies) {
            first.policies.clone()
        } else {
            Vec::new()
        },
    })
}

/// Combines the answers of single flows; no flow is an error.
pub(crate) fn fold(src: &str, dst: &str, mut singles: Vec<Answer>) -> Option<Answer> {
    if singles.len() == 1 {
        return singles.pop();
    }
    let first = singles.first()?.clone();
    let alike = singles.iter().all(|a| {
        a.verdict == first.verdict && a.egress == first.egress && a.ingress == first.ingress
    });
    let side = |get: &dyn Fn(&Answer) -> Option<&Side>| {
        let all: Vec<&Side> = singles.iter().filter_map(get).collect();
        one_side(&all, SideVerdict::Mixed)
    };
    Some(Answer {
        verdict: if singles.iter().all(|a| a.verdict == first.verdict) {
            first.verdict
        } else {
            Verdict::Mixed
        },
        error: false,
        family: first
            .family
            .filter(|f| singles.iter().all(|a| a.family == Some(*f))),
        source: src.to_owned(),
        destination: dst.to_owned(),
        egress: side(&|a| a.egress.as_ref()),
        ingress: side(&|a| a.ingress.as_ref()),
        answers: if alike { Vec::new() } else { singles },
    })
}
