//! Address blocks and domain names: D27, D88, D121 and D124 for `ipBlock`, D27 and D124 for
//! `networks`, D53 and D54 and section 4.4 for `domainNames`.

use palisade_core::policy::Direction::{self, Egress, Ingress};

use crate::documents::{ANP, BANP, CNP, CNP0, DNP, Form, NP};
use crate::harness::{Limit, all_violate, entries, groups, limit, list, required};

groups! {
    ip_blocks: [ip_blocks, exceptions],
    networks: [networks, lists_of_networks],
    domain_names: [domain_names, lists_of_domain_names, actions_of_domain_names],
}

/// Blocks that every form accepts without a problem.
const SOUND: [&str; 17] = [
    "10.0.0.0/8",
    "0.0.0.0/0",
    "0.0.0.0/1",
    "192.0.2.0/31",
    "192.0.2.1/32",
    "255.255.255.255/32",
    "::/0",
    "::/1",
    "2001:db8::/32",
    "2001:DB8::/32",
    "2001:0db8::/32",
    "2001:db8:0:0:0:0:0:0/32",
    "2001:db8::/127",
    "2001:db8::1/128",
    "::1/128",
    "::192.0.2.1/128",
    "fe80::/10",
];

/// Blocks with bits after the prefix.
const HOST_BITS: [&str; 4] = ["10.1.2.3/8", "192.0.2.1/31", "2001:db8::1/64", "::1/0"];

/// Blocks whose address has leading zeros: read as decimal in NetworkPolicy, rejected in
/// `networks`.
const LEADING_ZEROS: [&str; 4] = [
    "010.0.0.0/8",
    "10.00.0.0/8",
    "192.168.010.000/24",
    "010.1.2.3/8",
];

/// Texts that every form rejects.
const BROKEN: [&str; 35] = [
    "",
    "text",
    "/8",
    "10.0.0.0",
    "10.0.0.0/",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0.0/+8",
    "10.0.0.0/8a",
    "10.0.0.0/255.0.0.0",
    "10.0.0.0/8/8",
    "10.0.0.0/08",
    "10.0.0.0/00",
    "10.0.0.0/008",
    "2001:db8::/032",
    "10.0.0/8",
    "10/8",
    "10.0.0.0.0/8",
    "10.0.0.256/32",
    "10.0.0.a/8",
    "10..0.0/8",
    " 10.0.0.0/8",
    "10.0.0.0/8 ",
    "10.0.0.0 /8",
    "2001:db8::",
    "2001:db8::/129",
    "2001:db8::/-1",
    "2001:db8:::/32",
    "2001:db8/32",
    "2001:db8::10000/128",
    "fe80::1%eth0/64",
    "::ffff:10.0.0.0/104",
    "::ffff:a00:0/104",
    "::FFFF:0:0/96",
    "[2001:db8::]/32",
];

fn block(form: &Form, direction: Direction, cidr: &str) -> String {
    form.peer(direction, &format!("ipBlock: {{cidr: \"{cidr}\"}}"))
}

/// The forms with `ipBlock`, in both directions.
fn with_ip_blocks() -> Vec<(&'static Form, Direction)> {
    let forms = [&NP, &CNP0, &DNP];
    let both = |form| [(form, Ingress), (form, Egress)];
    forms.into_iter().flat_map(both).collect()
}

fn ip_blocks() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, direction) in with_ip_blocks() {
        let path = form.peer_path(direction, "ipBlock.cidr");
        let label = format!("{} {}", form.label(), direction.key());
        let mut cidr = limit(format!("2.1 D27 D124 ipBlock.cidr of {label}"));
        for text in SOUND {
            cidr = cidr.clean(text, block(form, direction, text));
        }
        for text in HOST_BITS {
            cidr = cidr.warns(text, block(form, direction, text), "CIDR-HOSTBITS", &path);
        }
        for text in LEADING_ZEROS {
            cidr = cidr.fits(text, block(form, direction, text));
        }
        let zeros = block(form, direction, "010.0.0.0/8");
        cidr = cidr
            .warns(
                "010.0.0.0/8 warns",
                zeros.clone(),
                "CIDR-LEADING-ZEROS",
                &path,
            )
            .means(
                "010.0.0.0/8 is decimal",
                zeros,
                block(form, direction, "10.0.0.0/8"),
            )
            .means(
                "10.1.2.3/8 is masked",
                block(form, direction, "10.1.2.3/8"),
                block(form, direction, "10.0.0.0/8"),
            );
        for text in BROKEN {
            cidr = cidr.violates(text, block(form, direction, text), "CIDR-INVALID", &path);
        }
        limits.push(cidr);
        let name = format!("2.1 ipBlock.cidr is required in {label}");
        let absent = form.peer(direction, "ipBlock: {}");
        let null = form.peer(direction, "ipBlock: {cidr: null}");
        limits.push(required(&name, &path, absent, null));
        let inside = |field: &str| form.peer_path(direction, &format!("ipBlock{field}"));
        let typed = |fields: &str, field: &str| {
            (
                form.peer(direction, &format!("ipBlock: {fields}")),
                inside(field),
            )
        };
        let cases = vec![
            typed("10.0.0.0/8", ""),
            typed("[]", ""),
            typed("{cidr: 10}", ".cidr"),
            typed("{cidr: [10.0.0.0/8]}", ".cidr"),
            typed("{cidr: 10.0.0.0/8, except: 10.1.0.0/16}", ".except"),
            typed("{cidr: 10.0.0.0/8, except: [1]}", ".except[0]"),
        ];
        limits.push(all_violate(
            &format!("2.1 D123 types of ipBlock of {label}"),
            "WRONG-TYPE",
            cases,
        ));
        limits.push(
            limit(format!("2.1 D26 unknown field of ipBlock of {label}")).violates(
                "excepts",
                form.peer(direction, "ipBlock: {cidr: 10.0.0.0/8, excepts: []}"),
                "UNKNOWN-FIELD",
                &inside(".excepts"),
            ),
        );
    }
    limits
}

fn exceptions() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, direction) in with_ip_blocks() {
        let label = format!("{} {}", form.label(), direction.key());
        let with = |cidr: &str, except: &str| {
            form.peer(
                direction,
                &format!("ipBlock: {{cidr: \"{cidr}\", except: {except}}}"),
            )
        };
        let path = form.peer_path(direction, "ipBlock.except[0]");
        let mut inside = limit(format!(
            "2.1 D88 D121 except lies strictly inside cidr of {label}"
        ));
        for (cidr, except) in [
            ("10.0.0.0/8", "10.0.0.0/9"),
            ("10.0.0.0/8", "10.255.255.255/32"),
            ("10.0.0.0/31", "10.0.0.1/32"),
            ("0.0.0.0/0", "0.0.0.0/1"),
            ("2001:db8::/32", "2001:db8:1::/48"),
            ("::/0", "8000::/1"),
        ] {
            let name = format!("{except} in {cidr}");
            inside = inside.fits(&name, with(cidr, &format!("[\"{except}\"]")));
        }
        for (cidr, except) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8", "10.1.2.3/8"),
            ("10.0.0.0/8", "10.0.0.0/7"),
            ("10.0.0.0/8", "0.0.0.0/0"),
            ("10.0.0.0/8", "11.0.0.0/16"),
            ("10.0.0.0/8", "2001:db8::/32"),
            ("0.0.0.0/0", "::/1"),
            ("::/0", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:db8::/32", "2001:db9::/48"),
            ("192.0.2.1/32", "192.0.2.1/32"),
        ] {
            let name = format!("{except} in {cidr}");
            let document = with(cidr, &format!("[\"{except}\"]"));
            inside = inside.violates(&name, document, "CIDR-EXCEPT", &path);
        }
        let without = block(form, direction, "10.0.0.0/8");
        let second = with("10.0.0.0/8", "[10.1.0.0/16, 11.0.0.0/16]");
        limits.push(
            inside
                .means("none", with("10.0.0.0/8", "[]"), without.clone())
                .means("null (D24)", with("10.0.0.0/8", "null"), without)
                .violates(
                    "the second",
                    second,
                    "CIDR-EXCEPT",
                    &form.peer_path(direction, "ipBlock.except[1]"),
                ),
        );
        let mut text = limit(format!("2.1 D27 D124 text of except of {label}"))
            .fits("host bits", with("10.0.0.0/8", "[10.1.2.3/16]"))
            .warns(
                "leading zeros",
                with("10.0.0.0/8", "[10.001.0.0/16]"),
                "CIDR-LEADING-ZEROS",
                &path,
            );
        for broken in BROKEN {
            let document = with("0.0.0.0/0", &format!("[\"{broken}\"]"));
            text = text.violates(broken, document, "CIDR-INVALID", &path);
        }
        limits.push(text);
        limits.push(crate::harness::unlimited(
            &format!("2.1 except of {label} has no most"),
            |count| {
                let except = entries(count, |it| format!("10.{}.{}.0/24", it / 256, it % 256));
                with("10.0.0.0/8", &except)
            },
        ));
    }
    limits
}

fn networks() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&CNP, &ANP, &BANP] {
        let path = form.peer_path(Egress, "networks[0]");
        let network = |text: &str| form.peer(Egress, &format!("networks: [\"{text}\"]"));
        let mut text_form = limit(format!("2.3 2.4 D27 D124 networks of {}", form.label()));
        for text in SOUND {
            text_form = text_form.fits(text, network(text));
        }
        for text in HOST_BITS {
            text_form = text_form.warns(text, network(text), "CIDR-HOSTBITS", &path);
        }
        text_form = text_form.means("masked", network("10.1.2.3/8"), network("10.0.0.0/8"));
        for text in BROKEN.into_iter().chain(LEADING_ZEROS) {
            text_form = text_form.violates(text, network(text), "CIDR-INVALID", &path);
        }
        limits.push(text_form);
        let wide = "2001:0db8:0000:0000:0000:0000:0000:0001";
        let longest = "2001:0db8:0000:0000:0000:0000:192.0.2.12/128";
        assert_eq!((wide.len(), longest.len()), (39, 44));
        limits.push(
            limit(format!(
                "2.3 2.4 networks entries of {} have 43 characters",
                form.label()
            ))
            .fits("42", network(&format!("{wide}/64")))
            .fits("43", network(&format!("{wide}/128")))
            .violates("44", network(longest), "TOO-LONG", &path),
        );
    }
    limits
}

fn lists_of_networks() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&CNP, &ANP, &BANP] {
        let label = form.label();
        let path = form.peer_path(Egress, "networks");
        let networks = |text: &str| form.peer(Egress, &format!("networks: {text}"));
        limits.push(list(
            &format!("2.3 2.4 D117 networks of {label} are 1 to 25"),
            1..=25,
            &path,
            |count| networks(&entries(count, |it| format!("10.{it}.0.0/16"))),
        ));
        limits.push(
            limit(format!("2.3 2.4 4.4 networks of {label} are a set"))
                .fits("two", networks("[10.0.0.0/8, 10.0.0.0/9]"))
                .violates(
                    "next to each other",
                    networks("[10.0.0.0/8, 10.0.0.0/8]"),
                    "DUPLICATE-ITEM",
                    &format!("{path}[1]"),
                )
                .violates(
                    "apart",
                    networks("[10.0.0.0/8, \"::/0\", \"10.0.0.0/8\"]"),
                    "DUPLICATE-ITEM",
                    &format!("{path}[2]"),
                ),
        );
        let cases = [
            (networks("10.0.0.0/8"), path.clone()),
            (networks("{cidr: 10.0.0.0/8}"), path.clone()),
            (networks("[1]"), format!("{path}[0]")),
            (networks("[{cidr: 10.0.0.0/8}]"), format!("{path}[0]")),
        ];
        let name = format!("2.3 2.4 D123 types of networks of {label}");
        limits.push(all_violate(&name, "WRONG-TYPE", cases.into()));
    }
    limits
}

fn domains(form: &Form, text: &str) -> String {
    form.peer(Egress, &format!("domainNames: {text}"))
}

fn domain_names() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&CNP, &ANP] {
        let path = form.peer_path(Egress, "domainNames[0]");
        let name = |text: &str| domains(form, &format!("['{text}']"));
        let mut pattern = limit(format!("2.4 D54 4.4 domainNames of {}", form.label()));
        for good in [
            "kubernetes.io",
            "*.kubernetes.io",
            "kubernetes.io.",
            "*.kubernetes.io.",
            "KUBERNETES.io",
            "a.b.c.d.example.com",
            "xn--bcher-kva.example.com",
            "1.example.com",
        ] {
            pattern = pattern.fits(good, name(good));
        }
        for bad in [
            "",
            "*",
            "*.com",
            "*.com.",
            "com",
            "localhost",
            "a.*.io",
            "*a.example.com",
            "**.kubernetes.io",
            "*.*.kubernetes.io",
            "-a.example.com",
            "a..io",
            ".kubernetes.io",
            "kubernetes.io..",
            "a b.example.com",
            "https://kubernetes.io",
            "kubernetes.io:443",
            "bücher.example.com",
        ] {
            pattern = pattern.violates(bad, name(bad), "DOMAIN-INVALID", &path);
        }
        limits.push(pattern);
        let mut odd = limit(format!("2.4 D54 odd domainNames of {}", form.label()));
        for text in ["[", "\\", "]", "^", "_", "`"] {
            odd = odd.fits(text, name(&format!("{text}a.example.com")));
        }
        limits.push(odd.fits("IPv4", name("192.0.2.1")));
    }
    limits
}

fn lists_of_domain_names() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&CNP, &ANP] {
        let label = form.label();
        let path = form.peer_path(Egress, "domainNames");
        limits.push(list(
            &format!("2.3 2.4 D117 domainNames of {label} are 1 to 25"),
            1..=25,
            &path,
            |count| domains(form, &entries(count, |it| format!("a{it}.example.com"))),
        ));
        limits.push(
            limit(format!("2.3 2.4 domainNames of {label} are a set"))
                .fits("two", domains(form, "[a.example.com, b.example.com]"))
                .violates(
                    "twice",
                    domains(form, "[a.example.com, b.example.com, a.example.com]"),
                    "DUPLICATE-ITEM",
                    &format!("{path}[2]"),
                ),
        );
        let cases = [
            (domains(form, "a.example.com"), path.clone()),
            (domains(form, "[1]"), format!("{path}[0]")),
        ];
        let name = format!("2.3 2.4 D123 types of domainNames of {label}");
        limits.push(all_violate(&name, "WRONG-TYPE", cases.into()));
    }
    limits
}

fn actions_of_domain_names() -> Vec<Limit> {
    let rule = |form: &Form, action: &str, peers: &str| {
        form.rule(Egress, &format!("action: {action}; to: [{peers}]"))
    };
    let peer = "{domainNames: [a.example.com]}";
    let both = "{namespaces: {}}, {domainNames: [a.example.com]}";
    let mut limits = Vec::new();
    for (form, accept) in [(&CNP, "Accept"), (&ANP, "Allow")] {
        let mut limit = limit(format!(
            "2.4 D17 D53 domainNames of {} are accepted only",
            form.label()
        ))
        .fits(accept, rule(form, accept, peer))
        .fits("beside another peer", rule(form, accept, both));
        for action in ["Deny", "Pass"] {
            for (at, peers) in [peer, both].into_iter().enumerate() {
                let document = rule(form, action, peers);
                let name = format!("{action} {peers}");
                let path = format!("spec.egress[0].to[{at}]");
                limit = limit.violates(&name, document, "DOMAIN-ACTION", &path);
            }
        }
        limits.push(limit);
    }
    let baseline =
        "tier: Baseline; egress: [{action: Accept, to: [{domainNames: [a.example.com]}]}]";
    limits.push(
        limit("2.4 D53 C23 domainNames in the Baseline tier").fits("Accept", CNP.spec(baseline)),
    );
    limits
}
