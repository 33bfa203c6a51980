//! The configuration files and options of a cluster's components.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::api::Api;
use crate::authority::{Credentials, write};
use crate::binaries::PLUGINS;
use crate::error::Result;
use crate::home::Home;
use crate::image::PAUSE;
use crate::kubeconfig::quoted;
use crate::process::run;

use super::network::Plugin;

/// The objects that a distribution would add: the API server's client of kubelets has the rights of
/// `system:masters`; kube-proxy and nodes have roles from the server itself. Only the role of
/// kube-proxy needs a binding.
const ROLES: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: testbed-kube-proxy
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:node-proxier
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: system:kube-proxy
";

/// Writes the objects that the server does not create by itself.
pub(crate) fn bootstrap(home: &Home, api: &Api) -> Result<()> {
    let path = home.file("bootstrap.yaml");
    write(&path, ROLES)?;
    let mut apply = api.kubectl();
    apply.args(["apply", "--server-side", "-f"]).arg(&path);
    run(apply, Duration::from_secs(60)).map(|_| ())
}

/// Options of the controller manager.
pub(crate) fn controllers(home: &Home, api: &Api) -> Vec<String> {
    let pki = home.file("pki");
    let file = |name: &str| pki.join(name).display().to_string();
    vec![
        format!(
            "--service-account-private-key-file={}",
            api.keys().service_accounts.display()
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--use-service-account-credentials=true".to_owned(),
        // The testbed assigns the ranges of pods: each node has its own.
        "--allocate-node-cidrs=false".to_owned(),
    ]
}

/// The CNI configuration.
pub(crate) fn cni(directory: &Path, pods: &str, plugin: Plugin) -> String {
    let kind = match plugin {
        Plugin::Ptp => r#""type": "ptp", "ipMasq": false"#,
        Plugin::Bridge => {
            r#""type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true"#
        }
    };
    let data = quoted(&directory.join("ipam").to_string_lossy());
    format!(
        r#"{{
  "cniVersion": "0.4.0",
  "name": "testbed",
  "plugins": [
    {{
      {kind},
      "ipam": {{
        "type": "host-local",
        "dataDir": {data},
        "ranges": [[{{ "subnet": "{pods}" }}]],
        "routes": [{{ "dst": "0.0.0.0/0" }}]
      }}
    }},
    {{ "type": "portmap", "capabilities": {{ "portMappings": true }} }}
  ]
}}
"#
    )
}

/// The configuration of containerd.
pub(crate) fn containerd(directory: &Path, plugins: &Path) -> String {
    let file = |name: &str| quoted(&directory.join(name).to_string_lossy());
    format!(
        r#"version = 2
root = {root}
state = {state}
[grpc]
  address = {socket}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Lowering the score needs a right that a machine for tests may not have; every sandbox would fail.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = {conf}
[plugins."io.containerd.internal.v1.opt"]
  path = {opt}
"#,
        root = file("root"),
        state = file("state"),
        socket = file("containerd.sock"),
        conf = quoted(&plugins.to_string_lossy()),
        opt = file("opt"),
    )
}

/// The configuration of kubelet.
pub(crate) fn kubelet(directory: &Path, credentials: &Credentials) -> String {
    let file = |path: &Path| quoted(&path.to_string_lossy());
    let socket = format!("unix://{}", directory.join("containerd.sock").display());
    let mut text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {authority}}}
authorization: {{mode: Webhook}}
tlsCertFile: {certificate}
tlsPrivateKeyFile: {key}
containerRuntimeEndpoint: {socket}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
resolvConf: \"\"
podLogsDir: /var/log/pods
makeIPTablesUtilChains: false
evictionHard: {{memory.available: 10Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
volumePluginDir: {plugins}
",
        authority = file(&credentials.authority),
        certificate = file(&credentials.certificate),
        key = file(&credentials.key),
        socket = quoted(&socket),
        plugins = file(&directory.join("volume-plugins")),
    );
    // Writing to a string cannot fail.
    let _ = writeln!(text, "nodeStatusUpdateFrequency: 5s\nsyncFrequency: 10s");
    text
}

/// The configuration of kube-proxy.
pub(crate) fn proxy(node: &str, access: &Path) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.200.0.0/16
hostnameOverride: {}
clientConnection: {{kubeconfig: {}}}
conntrack: {{maxPerCore: 0}}
",
        quoted(node),
        quoted(&access.to_string_lossy())
    )
}
