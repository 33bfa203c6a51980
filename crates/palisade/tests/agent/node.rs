//! Two nodes with pods, an agent on each, and the directory that both watch.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use palisade_lab::lab::Lab;
use palisade_lab::packet::ProbePayload;
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::probe_plan::ProbePlanner;
use palisade_lab::topology::Location;
use palisade_lab::wire::Probe;
use tempfile::TempDir;

use crate::cluster;

pub(crate) const A: Location = Location::Pod(0);
pub(crate) const B: Location = Location::Pod(1);
pub(crate) const C: Location = Location::Pod(2);
pub(crate) const TCP_8080: ProbePayload = ProbePayload::Tcp { port: 8080 };
pub(crate) const TCP_81: ProbePayload = ProbePayload::Tcp { port: 81 };
pub(crate) const UDP_53: ProbePayload = ProbePayload::Udp { port: 53 };

/// The nodes, with the blocks of their pods.
pub(crate) const NODES: &str = "\
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.0.1.0/24, 'fd00:1::/64']}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: 'fd00:ff::1'}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
spec: {podCIDRs: [10.0.2.0/24, 'fd00:2::/64']}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}, {type: InternalIP, address: 'fd00:ff::2'}]}
";

/// The nodes, as controllers leave them that give them no blocks.
pub(crate) fn without_blocks() -> String {
    let lines = NODES.lines().filter(|it| !it.starts_with("spec:"));
    lines.map(|it| format!("{it}\n")).collect()
}

const POD_A: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.1.1}, {ip: 'fd00:1::1'}]}
";

pub(crate) const POD_B: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: b}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.1.2}, {ip: 'fd00:1::2'}]}
";

pub(crate) fn pod_c(labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: c, namespace: x, labels: {labels}}}\n\
         spec: {{nodeName: n2, containers: [{{name: c, image: i}}]}}\n\
         status: {{podIPs: [{{ip: 10.0.2.1}}, {{ip: 'fd00:2::1'}}]}}\n"
    )
}

pub(crate) const POLICIES: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: x}
spec: {podSelector: {matchLabels: {closed: 'yes'}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 8080}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: egress, namespace: x}
spec: {podSelector: {matchLabels: {app: b}}, policyTypes: [Egress], egress: []}
";

pub(crate) const ALLOW_81: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: more, namespace: x}
spec: {podSelector: {matchLabels: {closed: 'yes'}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 81}]}]}
";

/// Everything has to have happened after this time.
const PATIENCE: Duration = Duration::from_secs(10);
pub(crate) const PORT: u16 = 9477;

pub(crate) struct Nodes {
    lab: Lab,
    directory: TempDir,
    agents: Vec<Agent>,
    n_started: usize,
    last_id: u32,
}

pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let pod_c = pod_c("{app: c, closed: 'yes'}");
        let all = [NODES, POD_A, POD_B, &pod_c].join("---\n");
        let lab = cluster::with(&all, &[], |furnished| {
            let realiser = ProbePlanner::new(furnished);
            Lab::build(furnished, &realiser.entries, &|_| {}).unwrap()
        });
        let nodes = Nodes {
            lab,
            directory: tempfile::tempdir().unwrap(),
            agents: Vec::new(),
            n_started: 0,
            last_id: 0x6000_0000,
        };
        std::fs::create_dir(nodes.source()).unwrap();
        for (name, text) in [
            ("nodes.yaml", NODES),
            ("a.yaml", POD_A),
            ("b.yaml", POD_B),
            ("c.yaml", &pod_c),
            ("policies.yaml", POLICIES),
        ] {
            nodes.write(name, text);
        }
        nodes
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.directory.path().join("objects")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.source().join(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.source().join(name)).unwrap();
    }

    /// Starts an agent on each node.
    pub(crate) fn start(&mut self, options: &[&str]) {
        self.agents.clear();
        for node in 0..2 {
            let agent = self.spawn(node, PORT, options);
            self.agents.push(agent);
        }
    }

    /// Starts an agent on the first node, for a cluster whose API server does not answer.
    pub(crate) fn start_without_server(&mut self, options: &[&str]) {
        self.agents.clear();
        let kubeconfig = self.directory.path().join("kubeconfig");
        // No process listens there.
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
             contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
        std::fs::write(&kubeconfig, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.args(["agent", "--node", "n1", "--kubeconfig"]);
        command.arg(kubeconfig).args(options);
        let agent = self.run(0, PORT, &mut command);
        self.agents.push(agent);
    }

    /// Starts an agent on each node, that of the first with more options.
    pub(crate) fn start_first_with(&mut self, options: &[&str]) {
        self.agents = vec![self.spawn(0, PORT, options), self.spawn(1, PORT, &[])];
    }

    pub(crate) fn start_second(&mut self, node: usize) -> Agent {
        self.spawn(node, PORT + 1, &[])
    }

    fn spawn(&mut self, node: usize, port: u16, options: &[&str]) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command
            .args(["agent", "--node", &format!("n{}", node + 1), "--source"])
            .arg(self.source())
            .args(options);
        self.run(node, port, &mut command)
    }

    fn run(&mut self, node: usize, port: u16, command: &mut Command) -> Agent {
        self.n_started += 1;
        let log = self.directory.path().join(format!("log{}", self.n_started));
        command
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let child = self.lab.world().in_node(node, || command.spawn());
        Agent {
            child: child.unwrap().unwrap(),
            log,
        }
    }

    pub(crate) fn log(&self, node: usize) -> String {
        std::fs::read_to_string(&self.agents[node].log).unwrap()
    }

    /// The names of an agent's threads.
    pub(crate) fn threads(&self, node: usize) -> Vec<String> {
        let tasks = format!("/proc/{}/task", self.agents[node].child.id());
        let tasks = std::fs::read_dir(tasks).unwrap().flatten();
        let names = tasks.map(|it| std::fs::read_to_string(it.path().join("comm")).unwrap());
        names.map(|it| it.trim().to_owned()).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        for agent in &self.agents {
            let pid = i32::try_from(agent.child.id()).unwrap();
            kill(Pid::from_raw(pid), signal).unwrap();
        }
    }

    /// Waits until the agents have ended; whether all of them were content.
    pub(crate) fn end(&mut self) -> bool {
        let mut is_well = true;
        for agent in &mut self.agents {
            let started = Instant::now();
            let status = loop {
                if let Some(status) = agent.child.try_wait().unwrap() {
                    break status;
                }
                assert!(started.elapsed() < PATIENCE, "it does not end");
                std::thread::sleep(Duration::from_millis(5));
            };
            is_well &= status.success();
        }
        is_well
    }

    /// Removes everything on both nodes; returns the output of the second.
    pub(crate) fn clean_up(&self) -> String {
        let [_, second] = [0, 1].map(|node| self.clean_up_node(node));
        second
    }

    fn clean_up_node(&self, node: usize) -> String {
        self.say(node, &["--cleanup"])
    }

    /// Closes the first node and returns the output.
    pub(crate) fn close_only(&self, blocks: &[&str]) -> String {
        self.say(0, &[&["--close-only"], blocks].concat())
    }

    /// Has an agent that ends by itself do something.
    fn say(&self, node: usize, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.arg("agent").args(words);
        let output = self.lab.world().in_node(node, || command.output());
        let output = output.unwrap().unwrap();
        let body = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{body}");
        body
    }

    /// Ends the agent of a node, and with it all that it enforces.
    pub(crate) fn stop(&mut self, node: usize) {
        drop(self.agents.remove(node));
        self.clean_up_node(node);
    }

    /// Says something to the program `ip` on a node.
    pub(crate) fn ip(&self, node: usize, words: &str) {
        let ask = || Command::new("ip").args(words.split(' ')).status();
        let done = self.lab.world().in_node(node, ask).unwrap().unwrap();
        assert!(done.success(), "ip {words}");
    }

    /// A number that no packet has had.
    pub(crate) fn take_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends a packet and says what arrived where.
    pub(crate) fn exchange(
        &mut self,
        from: Location,
        packet: &[u8],
    ) -> Vec<(Location, ReceivedPacket)> {
        let packets = std::iter::once(packet);
        self.lab.wire().exchange(from, packets).unwrap()
    }

    pub(crate) fn in_node<T>(&self, node: usize, work: impl FnOnce() -> T) -> T {
        self.lab.world().in_node(node, work).unwrap()
    }

    pub(crate) fn in_pod<T>(&self, pod: usize, work: impl FnOnce() -> T) -> T {
        self.lab.world().in_pod(pod, work).unwrap()
    }

    /// What the agent of a node answers: the status and the words.
    pub(crate) fn get(&self, node: usize, path: &str) -> (u16, String) {
        self.try_get(node, path).unwrap()
    }

    fn try_get(&self, node: usize, path: &str) -> std::io::Result<(u16, String)> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer: String = self.lab.world().in_node(node, ask).unwrap()?;
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, words) = answer.split_once("\r\n\r\n").unwrap();
        Ok((status, words.to_owned()))
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while !is_so() {
            let logs: Vec<String> = (0..self.agents.len()).map(|it| self.log(it)).collect();
            assert!(started.elapsed() < PATIENCE, "{what}\n{}", logs.join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_until_ready(&self) {
        for node in 0..2 {
            self.wait("not ready", || {
                self.try_get(node, "/readyz")
                    .is_ok_and(|(status, _)| status == 200)
            });
        }
    }

    pub(crate) fn wait_until_not_ready(&self, words: &str) {
        self.wait("ready", || {
            let (status, body) = self.get(1, "/readyz");
            status == 503 && body.contains(words)
        });
    }

    /// Until the agent of the first node is not ready, and says why.
    pub(crate) fn wait_until_first_says(&self, words: &str) {
        self.wait(words, || {
            let body = self.try_get(0, "/readyz");
            body.is_ok_and(|(status, body)| status == 503 && body.contains(words))
        });
    }

    /// Ends the agents without any chance to do anything.
    pub(crate) fn kill(&mut self) {
        self.agents.clear();
    }

    pub(crate) fn wait_until_log(&self, node: usize, words: &str) {
        self.wait(words, || self.log(node).contains(words));
    }

    /// Until the agent of the second node has taken the marks of an address that changed hands.
    pub(crate) fn wait_until_changed_hands(&self) {
        self.wait_until_metric(1, "palisade_mark_sweeps_total 2");
    }

    pub(crate) fn wait_until_metric(&self, node: usize, line: &str) {
        self.wait(line, || {
            let metrics = self.try_get(node, "/metrics");
            metrics.is_ok_and(|(_, text)| text.lines().any(|it| it == line))
        });
    }

    pub(crate) fn wait_until_second_says(&self, second: &mut Agent, words: &str) {
        let log = second.log.clone();
        self.wait(words, || {
            std::fs::read_to_string(&log).unwrap().contains(words)
        });
    }

    pub(crate) fn wait_until(
        &mut self,
        from: Location,
        to: Location,
        carried: ProbePayload,
        passes: bool,
    ) {
        let started = Instant::now();
        while self.passes(from, to, carried) != [passes; 2] {
            assert!(
                started.elapsed() < PATIENCE,
                "{from:?} {to:?} {carried:?} {}",
                self.log(1)
            );
        }
    }

    pub(crate) fn assert_passes(
        &mut self,
        from: Location,
        to: Location,
        carried: ProbePayload,
        passes: bool,
    ) {
        let seen = self.passes(from, to, carried);
        assert_eq!(seen, [passes; 2], "{from:?} {to:?} {carried:?}");
    }

    /// Whether a packet arrives, for each family.
    fn passes(&mut self, from: Location, to: Location, carried: ProbePayload) -> [bool; 2] {
        [0, 1].map(|family| {
            let probe = Probe {
                from,
                source: addresses(from)[family].parse().unwrap(),
                destination: addresses(to)[family].parse().unwrap(),
                carried,
                source_port: None,
            };
            let measured = self.lab.wire().probe(&[probe], &|_| {}).unwrap();
            measured[0].arrived == Some(to)
        })
    }
}

pub(crate) fn addresses(place: Location) -> [&'static str; 2] {
    match place {
        Location::Pod(0) => ["10.0.1.1", "fd00:1::1"],
        Location::Pod(1) => ["10.0.1.2", "fd00:1::2"],
        Location::Pod(_) => ["10.0.2.1", "fd00:2::1"],
        Location::Node(_) | Location::Outside => ["192.0.2.1", "fd00:ff::1"],
    }
}
