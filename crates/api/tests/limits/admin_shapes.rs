//! AdminNetworkPolicy and BaselineAdminNetworkPolicy, section 2.2: peers in the three shapes
//! K, N and F.

use palisade_core::policy::Direction::{Egress, Ingress};

use crate::documents::{ANP, ANP_K, ANP_N, BANP, BANP_K, BANP_N, DIRECTIONS, Form};
use crate::harness::{
    Limit, all_violate, entries, groups, limit, list, one_of, required, unlimited,
};

groups! {
    late_peers: [late_peers, late_pods],
    early_peers: [early_peers, related, label_keys],
    mixed: [mixed_shapes, late_peers_in_early_shapes],
    pruned: [pruned_shapes],
}

const KINDS: [&Form; 2] = [&ANP, &BANP];
/// Shapes K and N of both kinds.
const EARLY: [&Form; 4] = [&ANP_K, &ANP_N, &BANP_K, &BANP_N];

fn late_peers() -> Vec<Limit> {
    let pods = "pods: {namespaceSelector: {}, podSelector: {}}";
    let egress = [
        "namespaces: {matchLabels: {a: b}}",
        pods,
        "networks: [10.0.0.0/8]",
        "nodes: {}",
        "domainNames: [a.example.com]",
    ];
    let mut limits = Vec::new();
    for form in KINDS {
        let label = form.label();
        for direction in DIRECTIONS {
            let fields = match (direction, form.is_baseline()) {
                (Ingress, _) => &egress[..2],
                (Egress, true) => &egress[..4],
                (Egress, false) => &egress[..],
            };
            let path = form.peer_path(direction, "");
            let name = format!(
                "2.2 D17 F peer of {} of {label} is exactly one",
                direction.key()
            );
            limits.push(one_of(&name, fields, ("ONE-OF", &path), |text| {
                form.peer(direction, text)
            }));
            let mut unknown: Vec<&str> = egress.into_iter().skip(fields.len()).collect();
            unknown.extend([
                "all: {}",
                "podSelector: {}",
                "ipBlock: {}",
                "matchLabels: {}",
            ]);
            let cases = unknown.into_iter().map(|field| {
                let key = field.split(':').next().unwrap_or_default();
                let document = form.peer(direction, &format!("namespaces: {{}}, {field}"));
                (document, form.peer_path(direction, key))
            });
            let name = format!(
                "2.2 D17 D26 unknown fields of a peer of {} of {label}",
                direction.key()
            );
            limits.push(all_violate(&name, "UNKNOWN-FIELD", cases.collect()));
        }
        let mut only_egress = limit(format!("2.2 egress-only peers of {label}"));
        for field in [
            "networks: [10.0.0.0/8]",
            "nodes: {}",
            "domainNames: [a.example.com]",
        ] {
            let key = field.split(':').next().unwrap_or_default();
            let path = form.peer_path(Ingress, key);
            only_egress =
                only_egress.violates(key, form.peer(Ingress, field), "UNKNOWN-FIELD", &path);
        }
        limits.push(only_egress.may("ONE-OF", &form.peer_path(Ingress, "")));
    }
    let path = BANP.peer_path(Egress, "domainNames");
    let names = BANP.peer(Egress, "domainNames: [a.example.com]");
    limits.push(
        limit("2.3 domainNames are for AdminNetworkPolicy only")
            .violates("BANP", names, "UNKNOWN-FIELD", &path)
            .may("ONE-OF", &BANP.peer_path(Egress, "")),
    );
    limits
}

fn late_pods() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        for direction in DIRECTIONS {
            for (field, other) in [
                ("podSelector", "namespaceSelector: {}"),
                ("namespaceSelector", "podSelector: {}"),
            ] {
                let peer = |text: &str| form.peer(direction, &format!("pods: {{{text}}}"));
                limits.push(required(
                    &format!(
                        "3.12 D117 F pods.{field} of {} of {}",
                        direction.key(),
                        form.label()
                    ),
                    &form.peer_path(direction, &format!("pods.{field}")),
                    peer(other),
                    peer(&format!("{other}, {field}: null")),
                ));
            }
        }
    }
    limits
}

/// The fields of `namespaces` in shape K.
const NAMESPACES: [&str; 4] = [
    "related: Self",
    "namespaceSelector: {}",
    "sameLabels: [a]",
    "notSameLabels: [a]",
];

fn early_peers() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in EARLY {
        let label = form.label();
        for direction in DIRECTIONS {
            let key = direction.key();
            let peer = |text: &str| form.peer(direction, text);
            let path = form.peer_path(direction, "");
            let fields = [
                "namespaces: {namespaceSelector: {}}",
                "pods: {namespaces: {namespaceSelector: {}}, podSelector: {}}",
            ];
            let name = format!("2.2 D17 peer of {key} of {label} is exactly one");
            limits.push(one_of(&name, &fields, ("ONE-OF", &path), peer));

            let path = form.peer_path(direction, "namespaces");
            let mut several = limit(format!(
                "2.2 D120 namespaces of {key} of {label} is exactly one"
            ));
            for (at, field) in NAMESPACES.iter().enumerate() {
                several = several.fits(field, peer(&format!("namespaces: {{{field}}}")));
                for other in NAMESPACES.iter().skip(at + 1) {
                    let both = format!("{field}, {other}");
                    let document = peer(&format!("namespaces: {{{both}}}"));
                    several = several.violates(&both, document, "ONE-OF", &path);
                }
            }
            limits.push(several);

            let path = form.peer_path(direction, "pods.namespaces");
            let name = format!("2.2 D120 pods.namespaces of {key} of {label} is exactly one");
            limits.push(one_of(&name, &NAMESPACES, ("ONE-OF", &path), |text| {
                peer(&format!(
                    "pods: {{namespaces: {{{text}}}, podSelector: {{}}}}"
                ))
            }));
            limits.push(required(
                &format!("2.2 D117 pods.podSelector of {key} of {label}"),
                &form.peer_path(direction, "pods.podSelector"),
                peer("pods: {namespaces: {sameLabels: [a]}}"),
                peer("pods: {namespaces: {sameLabels: [a]}, podSelector: null}"),
            ));
            let own = match form.shape {
                "K" => "related: Self",
                _ => "namespaceSelector: {}",
            };
            let pods = |text: &str| {
                form.peers(
                    direction,
                    &format!("[{{namespaces: {{{own}}}}}, {{pods: {{{text}}}}}]"),
                )
            };
            limits.push(required(
                &format!("2.2 pods.namespaces of {key} of {label}"),
                &format!("{}[1].pods.namespaces", form.peers_path(direction)),
                pods("podSelector: {}"),
                pods("podSelector: {}, namespaces: null"),
            ));
        }
    }
    limits
}

fn related() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&ANP_K, &BANP_K] {
        let path = form.peer_path(Ingress, "namespaces.related");
        let namespaces =
            |word: &str| form.peer(Ingress, &format!("namespaces: {{related: {word}}}"));
        let mut limit = limit(format!("2.2 D45 D104 related of {}", form.label()));
        for word in ["Self", "NotSelf"] {
            limit = limit.fits(word, namespaces(word));
        }
        let pods = |word: &str| {
            form.peer(
                Ingress,
                &format!("pods: {{namespaces: {{related: {word}}}, podSelector: {{}}}}"),
            )
        };
        let inside = form.peer_path(Ingress, "pods.namespaces.related");
        for (word, meant) in [
            ("self", "Self"),
            ("SELF", "Self"),
            ("notSelf", "NotSelf"),
            ("notself", "NotSelf"),
        ] {
            limit = limit
                .warns(word, pods(word), "RELATED-CASE", &inside)
                .means(&format!("{word} means {meant}"), pods(word), pods(meant));
        }
        for word in ["\"\"", "Other", "NotSelfs", "not-self"] {
            limit = limit.violates(word, namespaces(word), "UNKNOWN-VALUE", &path);
        }
        for value in ["true", "[Self]", "{}"] {
            limit = limit.violates(value, namespaces(value), "WRONG-TYPE", &path);
        }
        limits.push(limit);
    }
    limits
}

fn label_keys() -> Vec<Limit> {
    let mut limits = Vec::new();
    for field in ["sameLabels", "notSameLabels"] {
        for form in [&ANP_N, &BANP_N] {
            let label = form.label();
            let keys = |text: &str| form.peer(Ingress, &format!("namespaces: {{{field}: {text}}}"));
            let path = form.peer_path(Ingress, &format!("namespaces.{field}"));
            limits.push(list(
                &format!("2.3 D46 D47 D117 N {field} of {label} are at most 100"),
                0..=100,
                &path,
                |count| keys(&entries(count, |it| format!("a{it}"))),
            ));
            limits.push(
                limit(format!(
                    "2.0 D123 entries of {field} of {label} are label keys"
                ))
                .fits("a prefix", keys("[example.com/a]"))
                .violates(
                    "syntax",
                    keys("[a_]"),
                    "LABEL-INVALID",
                    &format!("{path}[0]"),
                )
                .violates("number", keys("[1]"), "WRONG-TYPE", &format!("{path}[0]"))
                .violates("text", keys("a"), "WRONG-TYPE", &path)
                .violates("map", keys("{a: b}"), "WRONG-TYPE", &path),
            );
        }
        for form in [&ANP_K, &BANP_K] {
            let name = format!("2.3 K {field} of {} have no most", form.label());
            limits.push(unlimited(&name, |count| {
                let keys = entries(count, |it| format!("a{it}"));
                let peers = format!(
                    "[{{namespaces: {{related: Self}}}}, {{namespaces: {{{field}: {keys}}}}}]"
                );
                form.peers(Ingress, &peers)
            }));
        }
    }
    limits
}

fn mixed_shapes() -> Vec<Limit> {
    let early = [
        "namespaces: {related: Self}",
        "namespaces: {namespaceSelector: {matchLabels: {a: b}}}",
        "namespaces: {sameLabels: [a]}",
        "namespaces: {notSameLabels: [a]}",
        "pods: {namespaces: {related: Self}, podSelector: {}}",
    ];
    let late = [
        "namespaces: {matchLabels: {a: b}}",
        "namespaces: {matchExpressions: [{key: a, operator: Exists}]}",
        "namespaces: {}",
        "pods: {namespaceSelector: {}, podSelector: {}}",
    ];
    let mut limits = Vec::new();
    for form in KINDS {
        let mut limit = limit(format!("2.2 D37 D120 one shape in one {}", form.label()));
        for peer in early.iter().chain(&late) {
            limit = limit.fits(peer, form.peer(Ingress, peer));
        }
        for one in early {
            for other in late {
                let name = format!("{one} and {other}");
                let peers = form.peers(Egress, &format!("[{{{one}}}, {{{other}}}]"));
                let turned = form.peers(Ingress, &format!("[{{{other}}}, {{{one}}}]"));
                let directions = form.spec(&format!(
                    "ingress: [{{action: Allow, from: [{{{one}}}]}}]; egress: [{{action: Deny, to: [{{{other}}}]}}]"
                ));
                let code = "DIALECT-MIXED";
                let path = |place: &str, peer: &str| format!("spec.{place}.{}", sign(peer));
                limit = limit
                    .violates(&name, peers, code, &path("egress[0].to[1]", other))
                    .violates(
                        &format!("{name}, turned"),
                        turned,
                        code,
                        &path("ingress[0].from[1]", one),
                    )
                    .violates(
                        &format!("{name}, by direction"),
                        directions,
                        code,
                        &path("egress[0].to[0]", other),
                    );
            }
        }
        limits.push(limit);
    }
    limits
}

/// The field of a peer that tells its shape.
fn sign(peer: &str) -> &'static str {
    match peer.split_once(": {").unwrap_or_default() {
        ("namespaces", _) => "namespaces",
        (_, pods) if pods.starts_with("namespaces:") => "pods.namespaces",
        _ => "pods.namespaceSelector",
    }
}

fn late_peers_in_early_shapes() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&ANP_K, &ANP_N, &BANP_K, &BANP_N] {
        let own = if form.shape == "K" {
            NAMESPACES[0]
        } else {
            NAMESPACES[2]
        };
        let mut limit = limit(format!("3.12 D120 {} has no address peers", form.label()));
        for peer in ["networks: [10.0.0.0/8]", "nodes: {}"] {
            let peers = format!("[{{namespaces: {{{own}}}}}, {{{peer}}}]");
            limit = limit.violates(
                peer,
                form.peers(Egress, &peers),
                "DIALECT-MIXED",
                "spec.egress[0]",
            );
        }
        limits.push(limit);
    }
    limits
}

fn pruned_shapes() -> Vec<Limit> {
    let blue = "namespaceSelector: {matchLabels: {a: b}}";
    let mut limits = Vec::new();
    for form in KINDS {
        for direction in DIRECTIONS {
            let peer = |text: &str| form.peer(direction, text);
            let wide = |inside: &str| form.peer_path(direction, inside);
            let narrow = peer(&format!("namespaces: {{{blue}}}"));
            let pods = format!("pods: {{namespaces: {{{blue}}}, podSelector: {{}}}}");
            let everyone = peer("namespaces: {}");
            limits.push(
                limit(format!(
                    "2.2 D38 D128 4.4 shape N of {} of {}",
                    direction.key(),
                    form.label()
                ))
                .warns(
                    "written",
                    narrow.clone(),
                    "ANP-PRUNED-WIDE",
                    &wide("namespaces.namespaceSelector"),
                )
                .means("stored", narrow, everyone.clone())
                .when_pruned()
                .clean(
                    "an empty selector",
                    peer("namespaces: {namespaceSelector: {}}"),
                )
                .means(
                    "sameLabels stored",
                    peer("namespaces: {sameLabels: [a]}"),
                    everyone,
                )
                .when_pruned()
                .fits("pods", peer(&pods))
                .violates(
                    "pods stored",
                    peer(&pods),
                    "REQUIRED",
                    &wide("pods.namespaceSelector"),
                )
                .when_pruned(),
            );
        }
    }
    limits
}
