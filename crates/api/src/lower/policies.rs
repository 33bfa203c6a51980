//! Policies of every API version, and how their rules fail closed.

use palisade_core::model::{
    Cluster, Effect, NamespaceId, NamespaceSet as Namespaces, Origin, Peer, PodSet, Policy,
    PolicyRank, PortMatch as Port, Rule, Rules,
};
use palisade_core::policy::{Action, BASELINE_ADMIN_PRIORITY, Direction, PolicyApi, Tier};
use palisade_core::time::digits;

use super::Objects;
use super::endpoints::selector;
use crate::blocks::IpBlock;
use crate::cluster_policy::{ClusterPeer, ClusterPolicy, ClusterRule, NamespaceSet, Subject};
use crate::cluster_policy_2021::{AppliedTo, Namespaces2021, Peer2021, Policy2021, Rule2021};
use crate::decode::Readable;
use crate::kind::Kind;
use crate::network_policy::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyRule};
use crate::network_policy_2016::{NetworkPolicy2016, Rule2016, Source2016};
use crate::object::{Object, ObjectSpec};
use crate::ports::PortMatch;
use crate::selector::Selector;

/// Where 2016 policies have an effect (D69).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolation {
    /// In namespaces whose annotation isolates them.
    ByAnnotation,
    /// Everywhere.
    Anywhere,
}

pub(super) fn lower<'o>(
    objects: &Objects<'o, '_>,
    cluster: &mut Cluster<'o>,
    isolation_of: Isolation,
) {
    let mut isolated = vec![None; cluster.namespaces.len()];
    for (origin, object) in &objects.list {
        if let ObjectSpec::Namespace(crate::object::Namespace { isolated: true }) = object.spec
            && let Some(id) = objects.namespace_ids.get(&*object.metadata.name)
            && let Some(isolated) = isolated.get_mut(id.0 as usize)
        {
            *isolated = Some(*origin);
            cluster.policies.push(isolation(*id, *origin));
        }
    }
    let mut policies = Vec::new();
    for (origin, object) in &objects.list {
        let frame = PolicyFrame {
            object,
            origin: *origin,
            namespace: objects.namespace_of(object),
        };
        policies.extend(match &object.spec {
            ObjectSpec::NetworkPolicy(policy) => Some(network_policy(&frame, policy)),
            ObjectSpec::NetworkPolicy2016(policy) => {
                let isolation = isolated.get(frame.namespace.0 as usize).copied().flatten();
                // Without isolation of the namespace a 2016 policy has no effect (D69).
                let counts = isolation.is_some() || isolation_of == Isolation::Anywhere;
                counts.then(|| network_policy_2016(&frame, policy))
            }
            ObjectSpec::ClusterPolicy(policy) => Some(cluster_policy(&frame, policy)),
            ObjectSpec::EarlyPolicy(policy) => Some(early_policy(&frame, policy)),
            ObjectSpec::Namespace(_)
            | ObjectSpec::Pod(_)
            | ObjectSpec::Node(_)
            | ObjectSpec::Service(_)
            | ObjectSpec::EndpointSlice(_)
            | ObjectSpec::Workload(_)
            | ObjectSpec::Unreadable => None,
        });
    }
    cluster.policies.extend(policies);
    cluster
        .policies
        .sort_by_key(|policy| (listed_with(policy.api), policy.namespace, policy.name));
}

/// Returns the API among whose policies a policy is listed: the annotation of a namespace is before
/// its policies of 2016.
fn listed_with(api: PolicyApi) -> PolicyApi {
    if api == PolicyApi::IsolationAnnotation {
        PolicyApi::NetworkPolicy2016
    } else {
        api
    }
}

/// Whether a policy is in audit mode, by its annotation.
pub(super) fn is_audited(object: &Object<'_>) -> bool {
    let annotations = object.metadata.annotations.iter();
    let mut enforcement = annotations.filter(|(key, _)| key == "palisade.dev/enforcement");
    enforcement.any(|(_, value)| {
        let value = value.as_ref().map(|text| &*text.value);
        value == Ok("audit")
    })
}

/// The common fields of every policy.
struct PolicyFrame<'o, 'a> {
    object: &'o Object<'a>,
    origin: Origin,
    namespace: NamespaceId,
}

impl<'o> PolicyFrame<'o, '_> {
    fn policy(&self, generation: PolicyApi, place: PolicyRank) -> Policy<'o> {
        let created = self.object.metadata.creation_timestamp.as_deref();
        Policy {
            api: generation,
            api_version: self.object.api_version,
            namespace: self.object.kind.is_namespaced().then_some(self.namespace),
            name: &self.object.metadata.name,
            rank: place,
            subject: None,
            ingress: Rules::default(),
            egress: Rules::default(),
            audited: is_audited(self.object),
            created: created.and_then(digits),
            is_over_budget: false,
            origin: self.origin,
        }
    }
}

/// The isolation of all pods of a namespace by its annotation, as a policy (D69).
fn isolation<'o>(namespace: NamespaceId, origin: Origin) -> Policy<'o> {
    Policy {
        api: PolicyApi::IsolationAnnotation,
        api_version: "v1beta",
        namespace: Some(namespace),
        name: "(isolation)",
        rank: PolicyRank::NetworkPolicy,
        subject: Some(PodSet {
            namespaces: Namespaces::Exact(namespace),
            pods: None,
        }),
        ingress: Rules {
            isolates: true,
            list: Vec::new(),
        },
        egress: Rules::default(),
        audited: false,
        created: None,
        is_over_budget: false,
        origin,
    }
}

fn network_policy<'o>(frame: &PolicyFrame<'o, '_>, policy: &'o NetworkPolicy<'_>) -> Policy<'o> {
    let NetworkPolicy {
        pod_selector,
        // `isolates` has handled it.
        policy_types: _,
        ingress,
        egress,
    } = policy;
    let own = Namespaces::Exact(frame.namespace);
    let subject = pod_selector.as_ref().ok();
    let rule = |rule: &'o NetworkPolicyRule<'_>| {
        let NetworkPolicyRule {
            peers,
            ports,
            sound,
            span: _,
        } = rule;
        let peer = |peer: &'o NetworkPolicyPeer<'_>| match peer {
            NetworkPolicyPeer::Pods { namespaces, pods } => Peer::Pods(PodSet {
                namespaces: match namespaces {
                    Some(namespaces) => selected(namespaces),
                    None => own.clone(),
                },
                pods: pods.as_ref().map(selector),
            }),
            NetworkPolicyPeer::IpBlock(block) => ip_block(block),
        };
        allowing(*sound, peers, ports, peer)
    };
    // Exact capacity: most policies have one or two rules.
    let counted = |direction, rules: &'o [NetworkPolicyRule<'o>]| {
        let rules = if policy.has_rules(direction) {
            rules
        } else {
            &[]
        };
        rules.iter()
    };
    Policy {
        subject: subject.map(|pods| PodSet {
            namespaces: own.clone(),
            pods: Some(selector(pods)),
        }),
        ingress: Rules {
            isolates: policy.isolates(Direction::Ingress),
            list: counted(Direction::Ingress, ingress).map(rule).collect(),
        },
        egress: Rules {
            isolates: policy.isolates(Direction::Egress),
            list: counted(Direction::Egress, egress).map(rule).collect(),
        },
        ..frame.policy(PolicyApi::NetworkPolicy, PolicyRank::NetworkPolicy)
    }
}

fn network_policy_2016<'o>(
    frame: &PolicyFrame<'o, '_>,
    policy: &'o NetworkPolicy2016<'_>,
) -> Policy<'o> {
    let NetworkPolicy2016 {
        pod_selector,
        ingress,
    } = policy;
    let own = Namespaces::Exact(frame.namespace);
    let subject = pod_selector.as_ref().ok();
    let rule = |rule: &'o Rule2016<'_>| {
        let Rule2016 {
            sources,
            ports,
            sound,
            span: _,
        } = rule;
        let peer = |source: &'o Source2016<'_>| {
            Peer::Pods(match source {
                Source2016::Pods(pods) => PodSet {
                    namespaces: own.clone(),
                    pods: Some(selector(pods)),
                },
                Source2016::Namespaces(namespaces) => PodSet {
                    namespaces: selected(namespaces),
                    pods: None,
                },
            })
        };
        allowing(*sound, sources, ports, peer)
    };
    Policy {
        subject: subject.map(|pods| PodSet {
            namespaces: own.clone(),
            pods: Some(selector(pods)),
        }),
        ingress: Rules {
            isolates: true,
            list: ingress.iter().map(rule).collect(),
        },
        ..frame.policy(PolicyApi::NetworkPolicy2016, PolicyRank::NetworkPolicy)
    }
}

/// A rule that can only allow: its unreadable parts match nothing (D21, D109).
fn allowing<'o, P>(
    sound: bool,
    peers: &'o Readable<Vec<Readable<P>>>,
    ports: &'o Readable<Vec<Readable<PortMatch<'_>>>>,
    lower_peer: impl Fn(&'o P) -> Peer<'o>,
) -> Rule<'o> {
    let effect = match (sound, peers, ports) {
        (true, Ok(peers), Ok(ports)) => {
            let mut readable = Vec::with_capacity(peers.len());
            readable.extend(peers.iter().flatten().map(lower_peer));
            let mut readable_ports = Vec::with_capacity(ports.len());
            readable_ports.extend(ports.iter().flatten().map(port));
            Some(Effect {
                action: Action::Accept,
                // An empty list is no filter; a list without a readable entry matches nothing.
                peers: (!peers.is_empty()).then_some(readable),
                ports: (!ports.is_empty()).then_some(readable_ports),
            })
        }
        _ => None,
    };
    let all_readable = |peers: &Vec<Readable<P>>, ports: &Vec<Readable<PortMatch<'_>>>| {
        peers.iter().all(Result::is_ok) && ports.iter().all(Result::is_ok)
    };
    let readable = match (peers, ports) {
        (Ok(peers), Ok(ports)) => sound && all_readable(peers, ports),
        _ => false,
    };
    Rule {
        name: None,
        written_action: None,
        effect,
        failed_closed: !readable,
    }
}

fn cluster_policy<'o>(frame: &PolicyFrame<'o, '_>, policy: &'o ClusterPolicy<'_>) -> Policy<'o> {
    let ClusterPolicy {
        tier,
        priority,
        subject,
        ingress,
        egress,
        early_shape: _,
    } = policy;
    let generation = if frame.object.kind == Kind::AdminNetworkPolicy {
        PolicyApi::Admin
    } else if frame.object.kind == Kind::BaselineAdminNetworkPolicy {
        PolicyApi::BaselineAdmin
    } else {
        PolicyApi::Cluster
    };
    // Without a tier the policy is in the first one, without a priority at its start, and none of
    // its rules can be trusted (D19, D115, D116).
    let sound = tier.is_ok() && !matches!(priority, Some(Err(_)));
    let priority = match priority {
        Some(priority) => priority.unwrap_or(0),
        None => BASELINE_ADMIN_PRIORITY,
    };
    let place = PolicyRank::Ordered(tier.unwrap_or(Tier::Admin), priority);
    let rules = |rules: &'o [ClusterRule<'_>]| Rules {
        isolates: false,
        list: rules.iter().map(|rule| cluster_rule(rule, sound)).collect(),
    };
    Policy {
        subject: subject.as_ref().ok().map(|subject| {
            let Subject { namespaces, pods } = subject;
            PodSet {
                namespaces: selected(namespaces),
                pods: pods.as_ref().map(selector),
            }
        }),
        ingress: rules(ingress),
        egress: rules(egress),
        ..frame.policy(generation, place)
    }
}

fn cluster_rule<'o>(rule: &'o ClusterRule<'_>, sound_policy: bool) -> Rule<'o> {
    let ClusterRule {
        name,
        action,
        action_text,
        peers,
        ports,
        sound,
        span: _,
    } = rule;
    let matched = match_of(peers, ports.as_ref(), cluster_peers).filter(|(peers, _)| {
        // Names can only be accepted (D53).
        let names = peers.iter().any(|it| matches!(it, Peer::Domains(_)));
        sound_policy && *sound && (!names || *action == Ok(Action::Accept))
    });
    let matched = matched.map(|(peers, ports)| (Some(peers), ports));
    Rule {
        name: name.as_deref(),
        ..deciding(*action, action_text.as_deref(), matched)
    }
}

/// The peers and ports of a rule; `None`: any.
type Filters<'o> = (Option<Vec<Peer<'o>>>, Option<Vec<Port<'o>>>);

/// A rule with an action, if all of it could be read.
fn deciding<'o>(
    action: Readable<Action>,
    written_action: Option<&'o str>,
    matched: Option<Filters<'o>>,
) -> Rule<'o> {
    Rule {
        name: None,
        written_action,
        failed_closed: matched.is_none() || action.is_err(),
        effect: match matched {
            // An unknown action denies what the rule matches (D18, D112).
            Some((peers, ports)) => Some(Effect {
                action: action.unwrap_or(Action::Deny),
                peers,
                ports,
            }),
            None => fail_closed(action),
        },
    }
}

/// The rule that replaces a rule with an unreadable part (D16, D113).
fn fail_closed<'o>(action: Readable<Action>) -> Option<Effect<'o>> {
    match action {
        Ok(Action::Accept) => None,
        Ok(Action::Deny | Action::Pass) | Err(_) => Some(Effect::DENY_ALL),
    }
}

/// What a rule matches, if all of it could be read.
type Match<'o> = (Vec<Peer<'o>>, Option<Vec<Port<'o>>>);

fn match_of<'o, P>(
    peers: &'o Readable<Vec<Readable<P>>>,
    ports: Option<&'o Readable<Vec<Readable<PortMatch<'_>>>>>,
    lower_peers: impl Fn(&'o P) -> Vec<Peer<'o>>,
) -> Option<Match<'o>> {
    let peers = peers.as_ref().ok()?;
    let mut lowered = Vec::with_capacity(peers.len());
    for peer in peers {
        lowered.extend(lower_peers(peer.as_ref().ok()?));
    }
    let ports = match ports {
        None => None,
        Some(ports) => {
            let ports = ports.as_ref().ok()?.iter();
            let ports = ports.map(|it| it.as_ref().map(port));
            Some(ports.collect::<Result<Vec<Port<'o>>, _>>().ok()?)
        }
    };
    Some((lowered, ports))
}

fn cluster_peers<'o>(peer: &'o ClusterPeer<'_>) -> Vec<Peer<'o>> {
    let namespaces = |set: &'o NamespaceSet<'_>| match set {
        NamespaceSet::Selector(namespaces) => selected(namespaces),
        NamespaceSet::Own => Namespaces::Own,
        NamespaceSet::NotOwn => Namespaces::NotOwn,
        NamespaceSet::SameLabels(keys) => {
            Namespaces::SameLabels(keys.iter().map(|key| &**key).collect())
        }
        NamespaceSet::NotSameLabels(keys) => {
            Namespaces::NotSameLabels(keys.iter().map(|key| &**key).collect())
        }
    };
    match peer {
        ClusterPeer::Namespaces(set) => vec![Peer::Pods(PodSet {
            namespaces: namespaces(set),
            pods: None,
        })],
        ClusterPeer::Pods(set, pods) => vec![Peer::Pods(PodSet {
            namespaces: namespaces(set),
            pods: Some(selector(pods)),
        })],
        ClusterPeer::Networks(blocks) => {
            let blocks = blocks.iter().map(|cidr| Peer::Block {
                cidr: *cidr,
                except: Vec::new(),
            });
            blocks.collect()
        }
        ClusterPeer::Nodes(nodes) => vec![Peer::Nodes(selector(nodes))],
        ClusterPeer::DomainNames(names) => vec![Peer::Domains(names.clone())],
        ClusterPeer::All => vec![Peer::All],
    }
}

fn early_policy<'o>(frame: &PolicyFrame<'o, '_>, policy: &'o Policy2021<'_>) -> Policy<'o> {
    let Policy2021 {
        applied_to,
        ingress,
        egress,
    } = policy;
    let subject = applied_to.as_ref().ok().map(|applied_to| {
        let AppliedTo { namespaces, pods } = applied_to;
        PodSet {
            namespaces: selected(namespaces),
            pods: pods.as_ref().map(selector),
        }
    });
    let is_default = frame.object.kind == Kind::DefaultNetworkPolicy;
    // A default policy isolates in the directions it has rules for, and in both if it has none
    // (D63).
    let silent = ingress.is_none() && egress.is_none();
    let rules = |rules: &'o Option<Vec<Rule2021<'_>>>| Rules {
        isolates: is_default && (rules.is_some() || silent),
        list: rules.iter().flatten().map(early_rule).collect(),
    };
    let (generation, place) = if is_default {
        (PolicyApi::Default, PolicyRank::DefaultGroup)
    } else {
        (PolicyApi::EarlyCluster, PolicyRank::EarlyAdmin)
    };
    Policy {
        subject,
        ingress: rules(ingress),
        egress: rules(egress),
        ..frame.policy(generation, place)
    }
}

fn early_rule<'o>(rule: &'o Rule2021<'_>) -> Rule<'o> {
    let Rule2021 {
        action,
        action_text,
        peers,
        ports,
        sound,
        span: _,
    } = rule;
    let Some(action) = *action else {
        return allowing(*sound, peers, ports, early_peer);
    };
    let matched = match_of(peers, Some(ports), |peer| vec![early_peer(peer)]).filter(|_| *sound);
    // Empty lists are no filter here (D66).
    let matched = matched.map(|(peers, ports)| {
        let peers = (!peers.is_empty()).then_some(peers);
        (peers, ports.filter(|ports| !ports.is_empty()))
    });
    deciding(action, action_text.as_deref(), matched)
}

fn early_peer<'o>(peer: &'o Peer2021<'_>) -> Peer<'o> {
    match peer {
        Peer2021::Pods { namespaces, pods } => Peer::Pods(PodSet {
            namespaces: match namespaces {
                // The policy has no namespace: all namespaces match (D65).
                None => Namespaces::Selected {
                    selector: palisade_core::labels::Selector {
                        requirements: Vec::new(),
                    },
                    except: Vec::new(),
                },
                Some(Namespaces2021::Own) => Namespaces::Own,
                Some(Namespaces2021::Selected {
                    selector: all,
                    except,
                }) => Namespaces::Selected {
                    selector: selector(all),
                    except: except.iter().map(selector).collect(),
                },
            },
            pods: pods.as_ref().map(selector),
        }),
        Peer2021::IpBlock(block) => ip_block(block),
    }
}

fn selected<'o>(namespaces: &'o Selector<'_>) -> Namespaces<'o> {
    Namespaces::Selected {
        selector: selector(namespaces),
        except: Vec::new(),
    }
}

fn ip_block<'o>(block: &IpBlock) -> Peer<'o> {
    let IpBlock { cidr, except } = block;
    Peer::Block {
        cidr: *cidr,
        except: except.clone(),
    }
}

fn port<'o>(port: &'o PortMatch<'_>) -> Port<'o> {
    match port {
        PortMatch::Numbers(protocol, range) => Port::Numbers(*protocol, *range),
        PortMatch::NamedWithProtocol(protocol, name) => Port::Named(Some(*protocol), name),
        PortMatch::Named(name) => Port::Named(None, name),
    }
}
