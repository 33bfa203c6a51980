//! `deploy/systemd/palisade-boot.service`: closed before the kubelet starts.

use crate::manifest::flags;
use crate::{Test, agent_help, read};

pub(crate) const TESTS: [Test; 1] = [("the_unit_closes_before_the_kubelet", closes_first)];

fn closes_first() {
    let unit = read("deploy/systemd/palisade-boot.service");
    let values = |key: &str| -> Vec<&str> {
        let lines = unit.lines().filter(|it| !it.starts_with('#'));
        let pairs = lines.filter_map(|it| it.split_once('='));
        pairs.filter(|it| it.0 == key).map(|it| it.1).collect()
    };
    // Its end is what the kubelet waits for, and without it there is none.
    assert_eq!(values("Type"), ["oneshot"]);
    assert_eq!(values("Before"), ["kubelet.service"]);
    assert_eq!(values("RequiredBy"), ["kubelet.service"]);
    // Units that flush all tables start before.
    assert!(values("After")[0].contains("nftables.service"));
    let start = values("ExecStart");
    let [start] = start.as_slice() else {
        panic!("{start:?}");
    };
    let words = start
        .strip_prefix("/usr/local/bin/palisade agent ")
        .unwrap();
    assert_eq!(words, "--close-only $POD_CIDRS");
    let help = agent_help();
    for flag in flags(&unit) {
        assert!(help.contains(flag), "{flag} is no flag of the agent");
    }
    assert_eq!(values("CapabilityBoundingSet"), ["CAP_NET_ADMIN"]);
}
