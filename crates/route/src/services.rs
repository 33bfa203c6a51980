//! Detection of IPVS as the translator of Services.
//!
//! For routing, a packet to a Service is then for the node itself, because the addresses of all
//! Services are on one of its interfaces. `input` sees it with the Service's address, which
//! connection tracking takes for the server's: egress is evaluated for an address that no policy
//! selects (D78). IPVS then sends it to a pod through `output`, where nothing is evaluated: if the
//! pod is on the client's node, its ingress is never evaluated.

use crate::elsewhere::NodeInterface;

/// The interface on which kube-proxy keeps the addresses of Services for IPVS.
const OF_KUBE_PROXY: &str = "kube-ipvs0";

/// The kernel's answer about virtual services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualServices {
    /// The kernel has no IPVS.
    None,
    /// The beginning of its list.
    Listed(String),
}

/// Returns whether IPVS translates Services: virtual services exist, or kube-proxy has prepared for
/// them.
pub fn services(interfaces: &[NodeInterface], listed: &VirtualServices) -> bool {
    let is_prepared = interfaces.iter().any(|it| it.name == OF_KUBE_PROXY);
    is_prepared
        || match listed {
            VirtualServices::None => false,
            VirtualServices::Listed(text) => text.lines().any(is_service),
        }
}

/// Returns whether a line is a service. Backends and the second line of the head begin with an
/// arrow.
fn is_service(line: &str) -> bool {
    let kinds = ["TCP ", "UDP ", "SCTP ", "FWM "];
    kinds.iter().any(|it| line.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bypass::LinkKind;

    fn named(name: &str) -> NodeInterface {
        NodeInterface {
            index: 1,
            name: name.to_owned(),
            link: LinkKind::Other,
            controller: None,
            has_xdp: false,
        }
    }

    /// `/proc/net/ip_vs` of a kernel with the module and without services.
    const HEAD: &str = "IP Virtual Server version 1.2.1 (size=4096)\n\
        Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";

    #[test]
    fn one_virtual_service_counts_and_the_module_alone_does_not() {
        let eth0 = [named("eth0")];
        assert!(!services(&eth0, &VirtualServices::None));
        assert!(!services(&eth0, &VirtualServices::Listed(HEAD.to_owned())));
        for line in [
            "TCP  0A600001:01BB rr\n  -> C0000201:192B      Masq    1      0          0\n",
            "UDP  [fd00:0000:0000:0000:0000:0000:0000:000a]:0035 rr\n",
            "FWM  00000001 rr\n",
        ] {
            let listed = VirtualServices::Listed(format!("{HEAD}{line}"));
            assert!(services(&eth0, &listed), "{line}");
        }
        assert!(services(
            &[named("eth0"), named("kube-ipvs0")],
            &VirtualServices::None
        ));
    }
}
