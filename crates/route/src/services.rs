//! Whether Services are translated by IPVS.
//!
//! A packet to a Service then is the node's own for routing, since the addresses of all Services are on an interface of the
//! node. `input` sees it with the Service's address, which connection tracking takes for the server's: egress is judged by
//! an address that no policy is about (D78). IPVS then sends it to a pod by `output`, where nothing is judged, so that the ingress of a
//! pod on the client's node is not asked at all.

use crate::elsewhere::NodeInterface;

/// The interface on which kube-proxy keeps the addresses of Services for IPVS.
const OF_KUBE_PROXY: &str = "kube-ipvs0";

/// What the kernel says of virtual services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualServices {
    /// It knows nothing of IPVS.
    None,
    /// The beginning of its list.
    Listed(String),
}

/// Whether Services are translated by IPVS: there are some, or kube-proxy has begun with them.
pub fn services(interfaces: &[NodeInterface], listed: &VirtualServices) -> bool {
    let is_prepared = interfaces.iter().any(|it| it.name == OF_KUBE_PROXY);
    is_prepared
        || match listed {
            VirtualServices::None => false,
            VirtualServices::Listed(text) => text.lines().any(is_service),
        }
}

/// Backends begin with an arrow, and so does the second line of the head.
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

    /// As `/proc/net/ip_vs` of a kernel with the module and nothing to do.
    const HEAD: &str = "IP Virtual Server version 1.2.1 (size=4096)\n\
        Prot LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";

    #[test]
    fn one_service_is_enough_and_the_module_alone_is_not() {
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
