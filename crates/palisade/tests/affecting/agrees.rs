//! What `palisade affecting` shows is what `palisade explain` says.

use serde_json::Value;

use super::{run, text};

/// Every witness of every policy of the examples is a flow for which `explain` has the same
/// verdict.
#[test]
fn explain_agrees_with_every_witness() {
    let mut n_witnesses = 0;
    for example in ["tenants", "shop"] {
        let path = format!("examples/{example}");
        let check = run(
            &["explain", "-q", "-f", &path, "--flows", "-", "-o", "jsonl"],
            "",
        );
        assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
        let policies: &[&str] = match example {
            "tenants" => &[
                "cnp/platform-services",
                "cnp/guard-nodes",
                "cnp/tenant-blue",
                "cnp/tenants-apart",
                "cnp/closed-by-default",
                "netpol/blue/web",
                "netpol/green/within-tenant",
            ],
            _ => &["netpol/shop/default-deny"],
        };
        for policy in policies {
            let args = ["affecting", "-q", "-f", &path, "-o", "json", policy];
            let output = run(&args, "");
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            let lists = ["overrides", "overriddenBy", "defersTo"].into_iter();
            let links = lists.flat_map(|key| answer[key].as_array().unwrap());
            let links: Vec<&Value> = links.collect();
            let flows = links.iter().map(|link| {
                let flow = &link["witness"];
                let word = |key: &str| flow[key].as_str().unwrap().to_owned();
                let port = match flow["port"].as_u64() {
                    Some(port) => format!("/{port}"),
                    None => String::new(),
                };
                let protocol = word("protocol").to_lowercase();
                format!(
                    "{} {} {protocol}{port}\n",
                    word("source"),
                    word("destination")
                )
            });
            let flows: String = flows.collect();
            let args = ["explain", "-q", "-f", &path, "--flows", "-", "-o", "jsonl"];
            let lines = text(&run(&args, &flows).stdout);
            assert_eq!(lines.lines().count(), links.len(), "{flows}");
            for (link, line) in links.iter().zip(lines.lines()) {
                let explanation: Value = serde_json::from_str(line).unwrap();
                let direction = link["direction"].as_str().unwrap().to_lowercase();
                assert_eq!(
                    explanation[&direction]["verdict"], link["verdict"],
                    "{link} {line}"
                );
                n_witnesses += 1;
            }
        }
    }
    assert!(n_witnesses >= 20, "{n_witnesses}");
}
