//! The required combinations of scenarios: every valid combination of form, tier, action,
//! direction, peer and port filter, and every defect with each of them that matters.

use std::sync::OnceLock;

/// One rule: its parts and its defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The form and its dialect.
    pub generation: &'static str,
    /// `admin`, `netpol` or `baseline`.
    pub tier: &'static str,
    /// `accept`, `deny`, `pass`; `-` in forms that only allow.
    pub action: &'static str,
    /// `ingress` or `egress`.
    pub direction: &'static str,
    /// Kind of its sound peer; `-` if the defect is not in a rule.
    pub peer: &'static str,
    /// Kind of its port filter; `-` in defective ones.
    pub port: &'static str,
    /// `-` for none.
    pub defect: &'static str,
}

type Words = Vec<&'static str>;

/// Form and tier.
pub(crate) const FORMS: [(&str, &str); 13] = [
    ("np", "netpol"),
    ("np0-v1beta", "netpol"),
    ("np0-extensions", "netpol"),
    ("anp-k", "admin"),
    ("anp-n", "admin"),
    ("anp-f", "admin"),
    ("banp-k", "baseline"),
    ("banp-n", "baseline"),
    ("banp-f", "baseline"),
    ("cnp", "admin"),
    ("cnp", "baseline"),
    ("cnp0", "admin"),
    ("dnp", "baseline"),
];

pub(crate) fn is_anp(generation: &str) -> bool {
    generation.starts_with("anp") || generation.starts_with("banp")
}

pub(crate) fn is_np0(generation: &str) -> bool {
    generation.starts_with("np0")
}

/// Dialect K or N.
pub(crate) fn is_early(generation: &str) -> bool {
    is_anp(generation) && !generation.ends_with("-f")
}

fn actions(generation: &str) -> Words {
    match generation {
        "cnp" | "anp-k" | "anp-n" | "anp-f" => vec!["accept", "deny", "pass"],
        "banp-k" | "banp-n" | "banp-f" | "cnp0" => vec!["accept", "deny"],
        _ => vec!["-"],
    }
}

fn directions(generation: &str) -> Words {
    if is_np0(generation) {
        vec!["ingress"]
    } else {
        vec!["ingress", "egress"]
    }
}

pub(crate) fn peers(generation: &str, direction: &str, action: &str) -> Words {
    let mut out = match generation {
        "np" => vec![
            "any",
            "pods",
            "namespaces",
            "pods-namespaces",
            "block",
            "block-except",
        ],
        "np0-v1beta" => vec!["any", "pods", "namespaces"],
        "np0-extensions" => vec![
            "any",
            "pods",
            "namespaces",
            "pod-selector",
            "namespace-selector",
        ],
        "cnp" => vec!["namespaces", "pods", "pods-anywhere", "all"],
        "cnp0" | "dnp" => vec![
            "any",
            "pods",
            "namespaces",
            "namespaces-except",
            "self",
            "pods-namespaces",
            "block",
            "block-except",
        ],
        g if is_early(g) => {
            let mut early = vec![
                "namespaces",
                "pods",
                "same-labels",
                "not-same-labels",
                "pods-same-labels",
                "pods-not-same-labels",
            ];
            if g.ends_with("-k") {
                early.extend(["related-self", "related-not-self", "pods-related"]);
            }
            early
        }
        _ => vec!["namespaces", "pods"],
    };
    if direction == "egress" && matches!(generation, "cnp" | "anp-f" | "banp-f") {
        out.extend(["networks", "nodes"]);
        if action == "accept" && generation != "banp-f" {
            out.push("domains");
        }
    }
    out
}

/// The sound peers beside a defect: fewer where there are many kinds.
fn companions(generation: &str, direction: &str, action: &str) -> Words {
    let few: &[&str] = match generation {
        "cnp" if direction == "ingress" => &["namespaces", "all"],
        "cnp" => &["namespaces", "pods-anywhere", "networks", "domains"],
        g if is_early(g) => &[
            "namespaces",
            "same-labels",
            "pods-related",
            "pods-not-same-labels",
        ],
        _ => return peers(generation, direction, action),
    };
    let mut out = peers(generation, direction, action);
    out.retain(|p| few.contains(p));
    out.truncate(if is_early(generation) { 3 } else { out.len() });
    out
}

pub(crate) fn ports(generation: &str) -> Words {
    match generation {
        "np" | "cnp0" | "dnp" => vec![
            "none",
            "tcp",
            "udp",
            "sctp",
            "no-protocol",
            "range",
            "named",
            "named-udp",
            "all-tcp",
            "all-udp",
        ],
        "cnp" => vec!["none", "tcp", "udp", "sctp", "range", "named", "all-tcp"],
        g if is_np0(g) => vec!["none", "tcp", "udp", "no-protocol", "named", "all-tcp"],
        _ => vec![
            "none",
            "empty-list",
            "tcp",
            "udp",
            "sctp",
            "no-protocol",
            "range",
            "named",
        ],
    }
}

const SELECTORS: [&str; 5] = [
    "sel-operator",
    "sel-values",
    "sel-exists-values",
    "sel-null-label",
    "sel-label-type",
];

/// Defects of a rule.
fn rule_defects(generation: &str, direction: &str, action: &str) -> Words {
    let mut out = vec![
        "rule-unknown-key",
        "peers-type",
        "peer-empty",
        "peer-unknown-key",
        "peer-type",
    ];
    out.extend(SELECTORS);
    if !is_np0(generation) {
        out.push("sel-unknown-key");
    }
    out.extend([
        "ports-type",
        "port-unknown-key",
        "port-zero",
        "port-big",
        "port-bool",
    ]);
    match generation {
        "np" | "cnp0" | "dnp" => {
            out.extend([
                "block-and-pods",
                "block-unknown-key",
                "block-no-cidr",
                "cidr-bad",
                "cidr-mapped",
                "except-outside",
                "except-equal",
                "except-family",
                "port-protocol",
                "port-quoted",
                "endport-below",
                "endport-named",
                "endport-alone",
                "endport-big",
            ]);
            if generation == "np" {
                out.extend(["cidr-zeros", "cidr-length-zero"]);
            } else {
                out.extend([
                    "ns-empty",
                    "ns-self-false",
                    "ns-self-and-selector",
                    "ns-except-alone",
                    "ns-unknown-key",
                ]);
            }
            if generation == "dnp" {
                out.push("dnp-action");
            }
        }
        g if is_np0(g) => out.extend([
            "np0-both",
            "port-protocol",
            "port-sctp",
            "port-endport",
            "port-quoted",
        ]),
        _ => {
            out.extend([
                "peers-missing",
                "peers-empty",
                "peer-two",
                "peer-only-unknown",
                "peer-null",
                "pods-no-pod-selector",
                "port-empty",
                "port-two",
                "port-text",
                "range-reversed",
                "range-equal",
                "named-empty",
                "over-limit",
            ]);
            if generation == "cnp" {
                out.extend([
                    "protocols-empty",
                    "destination-empty",
                    "all-inner-key",
                    "ns-struct",
                ]);
            } else {
                out.extend(["port-protocol", "all-in-anp"]);
            }
            if is_early(generation) {
                out.extend([
                    "ns-two-fields",
                    "ns-none",
                    "dialect-mixed",
                    "pods-no-namespaces",
                ]);
                if generation.ends_with("-k") {
                    out.push("related-unknown");
                }
                if direction == "egress" {
                    out.extend(["networks-early", "nodes-early"]);
                }
            } else if direction == "ingress" {
                out.push("networks-ingress");
            } else {
                out.extend([
                    "cidr-bad",
                    "cidr-zeros",
                    "cidr-mapped",
                    "cidr-length-zero",
                    "networks-empty",
                    "networks-type",
                    "nodes-operator",
                ]);
                if generation == "banp-f" {
                    out.push("domains-banp");
                } else {
                    out.push("domains-empty");
                    if action != "accept" {
                        out.push("domains-not-accept");
                    }
                }
            }
            if generation == "anp-f" || generation == "banp-f" {
                out.extend(["pods-no-namespace-selector", "dialect-mixed"]);
            }
        }
    }
    // These replace the action.
    if action == "deny" {
        out.extend(["action-unknown", "action-absent", "action-unknown-and-peer"]);
        if generation.starts_with("banp") {
            out.push("action-pass");
        }
        if generation != "cnp0" {
            out.push("action-other");
        }
    }
    out
}

/// Defects of the rest of an object.
fn object_defects(generation: &str) -> Words {
    let mut out = vec!["spec-unknown-key", "rules-type"];
    match generation {
        "np" => out.extend([
            "subject-operator",
            "subject-unknown-key",
            "subject-null-label",
            "subject-type",
            "types-unknown",
            "types-unknown-only",
            "types-three",
            "types-type",
        ]),
        g if is_np0(g) => out.extend(["subject-operator", "subject-null-label", "subject-type"]),
        "cnp0" | "dnp" => out.extend([
            "subject-absent",
            "subject-operator",
            "subject-unknown-key",
            "subject-type",
            "applied-no-namespaces",
        ]),
        g => {
            out.extend([
                "subject-absent",
                "subject-empty",
                "subject-two",
                "subject-unknown-key",
                "subject-operator",
                "subject-null-label",
                "subject-type",
                "subject-no-pods",
            ]);
            if !g.starts_with("banp") {
                out.extend([
                    "priority-absent",
                    "priority-text",
                    "priority-negative",
                    "priority-big",
                ]);
            }
            if g == "cnp" {
                out.extend(["tier-unknown", "tier-absent", "tier-case"]);
            }
        }
    }
    out
}

fn build() -> (Vec<Mark>, Vec<Mark>) {
    let (mut sound, mut defective) = (Vec::new(), Vec::new());
    for (generation, tier) in FORMS {
        for action in actions(generation) {
            for direction in directions(generation) {
                let mark = |peer, port, defect| Mark {
                    generation,
                    tier,
                    action,
                    direction,
                    peer,
                    port,
                    defect,
                };
                for peer in peers(generation, direction, action) {
                    for port in ports(generation) {
                        sound.push(mark(peer, port, "-"));
                    }
                }
                for peer in companions(generation, direction, action) {
                    for defect in rule_defects(generation, direction, action) {
                        // Beside a peer there must be one.
                        if peer != "any" || !defect.starts_with("peers-") {
                            defective.push(mark(peer, "-", defect));
                        }
                    }
                }
                for defect in object_defects(generation) {
                    defective.push(mark("-", "-", defect));
                }
            }
        }
    }
    (sound, defective)
}

/// The sound and the defective combinations.
pub(crate) fn lists() -> &'static (Vec<Mark>, Vec<Mark>) {
    static LISTS: OnceLock<(Vec<Mark>, Vec<Mark>)> = OnceLock::new();
    LISTS.get_or_init(build)
}

/// Every combination that scenarios must produce: 4,000 seeds from 0 on produce all of them.
pub fn marks_required() -> Vec<Mark> {
    let (sound, defective) = lists();
    sound.iter().chain(defective).copied().collect()
}
