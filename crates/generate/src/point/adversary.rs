//! Policies that are made to be expensive, each with an ordinary twin of the same size.

use super::Plan;

/// A way to make a cluster expensive for its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adversary {
    /// Every pod is selected by a rule of its own: no two pods have one class.
    OwnClass,
    /// All NetworkPolicies select all pods of the only namespace.
    OneNamespace,
    /// Every pod is the subject of a NetworkPolicy of its own.
    PolicyPerPod,
    /// All cluster-wide policies have one priority and select every pod.
    OnePriority,
    /// Every rule has a range of ports that no other overlaps.
    PortRanges,
    /// Every rule has an address block with exceptions inside the pods' range.
    Blocks,
    /// All selectors are negative: `NotIn` and `DoesNotExist`.
    Negative,
    /// Every rule selects another set of namespaces.
    NamespaceSelectors,
}

impl Adversary {
    /// All of them.
    pub const ALL: [Adversary; 8] = [
        Adversary::OwnClass,
        Adversary::OneNamespace,
        Adversary::PolicyPerPod,
        Adversary::OnePriority,
        Adversary::PortRanges,
        Adversary::Blocks,
        Adversary::Negative,
        Adversary::NamespaceSelectors,
    ];

    /// The name that commands take.
    pub fn name(self) -> &'static str {
        match self {
            Adversary::OwnClass => "own-class",
            Adversary::OneNamespace => "one-namespace",
            Adversary::PolicyPerPod => "policy-per-pod",
            Adversary::OnePriority => "one-priority",
            Adversary::PortRanges => "port-ranges",
            Adversary::Blocks => "blocks",
            Adversary::Negative => "negative",
            Adversary::NamespaceSelectors => "namespace-selectors",
        }
    }

    /// A description of it for users.
    pub fn summary(self) -> &'static str {
        match self {
            Adversary::OwnClass => "every pod is selected by a rule of its own",
            Adversary::OneNamespace => "10,000 policies select all 10,000 pods of one namespace",
            Adversary::PolicyPerPod => "every pod has a policy of its own",
            Adversary::OnePriority => "1,000 cluster-wide policies for all, at one priority",
            Adversary::PortRanges => "5,000 ranges of ports, none overlapping another",
            Adversary::Blocks => "20,000 address blocks with exceptions in the pods' range",
            Adversary::Negative => "selectors by NotIn and DoesNotExist only",
            Adversary::NamespaceSelectors => "10,000 different selectors of namespaces",
        }
    }

    /// The adversary with a name.
    pub fn named(name: &str) -> Option<Adversary> {
        Adversary::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The expensive cluster.
    pub fn plan(self) -> Plan {
        Plan {
            adversary: Some(self),
            ..self.twin()
        }
    }

    /// An ordinary cluster with as many pods, namespaces, policies and rules.
    pub fn twin(self) -> Plan {
        let (namespaces, network_policies, rules, admin_policies) = match self {
            Adversary::OwnClass => (1_000, 1_000, 10, 0),
            Adversary::OneNamespace => (1, 10_000, 2, 0),
            Adversary::PolicyPerPod => (1_000, 10_000, 1, 0),
            Adversary::OnePriority => (1_000, 2_000, 2, 1_000),
            Adversary::PortRanges => (1_000, 1_000, 5, 0),
            Adversary::Blocks => (1_000, 2_000, 10, 0),
            Adversary::Negative => (1_000, 2_000, 2, 100),
            Adversary::NamespaceSelectors => (1_000, 2_000, 5, 0),
        };
        let mut plan = Plan::new(10_000, namespaces, network_policies, admin_policies);
        plan.rules = Some(rules);
        plan.admin_rules = (3, 3);
        plan.spread.unique_label = true;
        if self == Adversary::OneNamespace {
            plan.spread.namespace_cap = plan.pods;
        }
        plan
    }
}
