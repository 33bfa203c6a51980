//! Two sets of rules that were once taken for one: 128 bits stood for each, sums of words that anybody can compute.
//!
//! With sixteen bits chosen in each of 256 parts, a generalized birthday search finds such sets in two seconds. Here is what one found.

use std::fmt::Write as _;

use super::{PODS, diff, json, pairs, set};

/// For each of 2,560 rules whether it is of the first set (1), of the second (2) or of neither (0): ten digits to
/// the base of three, the lowest first, in each number of four hexadecimal digits.
const FOUND: [&str; 16] = [
    "77d206f9110046d51e54708b4a6467e55fab4812585614b600e32a5f00035309",
    "6a1c42351aba7bef39b45208727a3971473d3a014b33581e16dd605b77cb29af",
    "60ec3ff61aca2cc56bde74930f7d3c492c99180b72c04de864be429b721008ab",
    "25f506d95b9851294007697852fd630b7b413c6f7d5e5a114a8e370b60e844bd",
    "1bb3211120403ccd3c920fb933c15d7601d957945c3717ae43625e6b3d8c53b8",
    "7c904c1b30e105352f455e82034c15cf31565ab234fe5a3c31686cd3172a28ea",
    "5f370e5a45a54f476ff0336c2f8659bd3a5e439e214658a75a2d209f4d7c6c36",
    "09e91faa537f4dfd64a6699b42d432b75223383629c625387e21116030f34f77",
    "0ac3360655232cd975156dad5b464be0631e34954b6e37e760db5aa46871640a",
    "78ee07b155613d4f161919e84e9547cf249f0b831570163f369b143a7aca7170",
    "4c986ba41a2451bc4f004edd1b104d402dbb06ba629d58f4383d6dcd68796981",
    "49637e2a4a7634896106678b19dd26cd027a437272a371fe3da3543976b70ed6",
    "08bc780a040c4d876c3512a971fe4eff623721306f35780b7db3690457970b08",
    "351c7fa1765d7e3f37df40823c552fed1a716a877a77638a35cf3a00109c694f",
    "66c5166111d309570487551f68fb594d7e2c396e6907522d61c210067cc70e76",
    "160961e768fa6264710015e9424520635913745b3c514723481e50d715170056",
];

/// The rules of each set, by their places.
fn forged() -> Vec<u8> {
    let digits = FOUND.concat();
    let numbers = digits.as_bytes().chunks(4);
    let numbers = numbers.map(|it| u32::from_str_radix(std::str::from_utf8(it).unwrap(), 16));
    let rules = numbers.flat_map(|number| {
        let mut rest = number.unwrap();
        (0..10).map(move |_| {
            let digit = rest % 3;
            rest /= 3;
            u8::try_from(digit).unwrap()
        })
    });
    rules.collect()
}

/// The word of a rule, as it was when sums of them stood for sets of rules.
fn word(rule: u64) -> u128 {
    let mix = |mut number: u64| {
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    };
    let low = mix(rule.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let high = mix(low ^ rule.wrapping_mul(0xd6e8_feb8_6659_fd93));
    u128::from(high) << 64 | u128::from(low)
}

#[test]
fn the_sets_have_one_sum() {
    let sum = |which: u8| {
        let rules = (0..).zip(forged()).filter(|(_, it)| *it == which);
        let words = rules.map(|(rule, _)| word(rule));
        words.fold((0, 0_u128), |(n, sum), word| {
            (n + 1, sum.wrapping_add(word))
        })
    };
    let [(n_first, first), (n_second, second)] = [sum(1), sum(2)];
    assert_eq!((n_first, n_second), (879, 716));
    assert_eq!(first, second);
}

/// The pods, with a policy of such rules.
fn policy(rules: &[String]) -> String {
    let mut text = format!(
        "{PODS}apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: x}}\n\
         spec:\n  podSelector: {{matchLabels: {{app: a}}}}\n  ingress:\n"
    );
    for rule in rules {
        writeln!(text, "  - {rule}").unwrap();
    }
    text
}

#[test]
fn a_wider_rule_is_not_hidden_among_addresses() {
    // Before: everybody may reach port 80. The new rules say that again for two addresses, in many words; and one of them
    // opens port 22 to the second address.
    let (first, second) = ("203.0.113.1/32", "203.0.113.2/32");
    let all = "{ports: [{port: 80}]}".to_owned();
    let mut is_open = false;
    let mut rules: Vec<String> = Vec::new();
    for which in forged() {
        let block = |it: &str| format!("{{ipBlock: {{cidr: {it}}}}}");
        let from = match which {
            1 => block(first),
            2 => block(second),
            _ => [first, second].map(block).join(", "),
        };
        let port = if which == 2 && !is_open {
            is_open = true;
            22
        } else {
            80
        };
        rules.push(format!("{{from: [{from}], ports: [{{port: {port}}}]}}"));
    }
    rules.push(all.clone());
    let [old, new] = [policy(&[all]), policy(&rules)];
    let ran = diff(&old, &new, &["--fail-on-wider", "-o", "json"]);
    let expected = set(&["203.0.113.2/32 -> x/a tcp/22"]);
    assert_eq!(pairs(&json(&ran), "gained"), expected);
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn a_wider_rule_is_not_hidden_among_ports() {
    // The rules of one set open a port to one pod, those of the other another port to another pod.
    let rule = |which: u8| {
        let (from, ports) = match which {
            1 => ("{podSelector: {matchLabels: {app: b}}}", "{port: 1001}"),
            2 => (
                "{namespaceSelector: {}, podSelector: {matchLabels: {app: c}}}",
                "{port: 1003}",
            ),
            _ => (
                "{podSelector: {matchLabels: {app: d}}}",
                "{port: 1001}, {port: 1003}",
            ),
        };
        format!("{{from: [{from}], ports: [{ports}]}}")
    };
    let rules: Vec<String> = forged().into_iter().map(rule).collect();
    let [old, new] = [policy(&[rule(0)]), policy(&rules)];
    let ran = diff(&old, &new, &["--fail-on-wider", "-o", "json"]);
    let expected = set(&["x/b -> x/a tcp/1001", "v/c -> x/a tcp/1003"]);
    assert_eq!(pairs(&json(&ran), "gained"), expected);
    assert_eq!(ran.code, 1, "{}", ran.err);
}
