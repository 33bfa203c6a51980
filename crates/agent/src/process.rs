//! Resource usage of the agent's own process, from `/proc`.

use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// `USER_HZ`: the unit of times in `/proc`, the same on all architectures that the agent is built
/// for.
const TICKS: f64 = 100.0;

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Open files.
    pub open_files: u64,
    /// The limit of open files.
    pub most_files: u64,
    /// The start time in seconds since 1970.
    pub started: f64,
}

impl Usage {
    /// Reads the usage of this process; an unreadable value is 0.
    pub fn read() -> Usage {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Usage {
            open_files: u64::try_from(files).unwrap_or(u64::MAX),
            ..Usage::of(
                &text("/proc/self/stat"),
                &text("/proc/self/status"),
                &text("/proc/self/limits"),
                &text("/proc/stat"),
            )
        }
    }

    fn of(stat: &str, status: &str, limits: &str, machine: &str) -> Usage {
        // The program's name in brackets may contain spaces and brackets; the fields after it are
        // numbers. The first of them is field 3.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |number: usize| {
            let word = fields.split_whitespace().nth(number.saturating_sub(3));
            word.and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let kilobytes = |name| 1_024 * first_number(status, name);
        let boot = first_number(machine, "btime");
        Usage {
            cpu_seconds: (field(14) + field(15)) / TICKS,
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            open_files: 0,
            most_files: first_number(limits, "Max open files"),
            #[allow(
                clippy::cast_precision_loss,
                reason = "seconds since 1970 fit for long"
            )]
            started: boot as f64 + field(22) / TICKS,
        }
    }
}

/// Returns the first number of the line that begins with a word, or 0.
fn first_number(text: &str, word: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(word));
    let number = rest.and_then(|it| it.split_whitespace().next());
    number.and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// The metrics of a process, under the standard names of Prometheus clients.
#[derive(Debug, Default)]
pub(crate) struct Process {
    registry: Registry,
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    r#virtual: Gauge,
    open_files: Gauge,
    most_files: Gauge,
    started: Gauge<f64, AtomicU64>,
}

impl Process {
    pub(crate) fn new() -> Process {
        let mut process = Process {
            registry: Registry::with_prefix("process"),
            ..Process::default()
        };
        let registry = &mut process.registry;
        registry.register_with_unit(
            "cpu",
            "Processor time of the agent",
            Unit::Seconds,
            process.cpu.clone(),
        );
        registry.register_with_unit(
            "resident_memory",
            "Resident memory of the agent",
            Unit::Bytes,
            process.resident.clone(),
        );
        registry.register_with_unit(
            "virtual_memory",
            "Virtual memory of the agent",
            Unit::Bytes,
            process.r#virtual.clone(),
        );
        registry.register(
            "open_fds",
            "Open files of the agent",
            process.open_files.clone(),
        );
        registry.register(
            "max_fds",
            "Limit of open files of the agent",
            process.most_files.clone(),
        );
        registry.register_with_unit(
            "start_time",
            "Start time of the agent, since 1970",
            Unit::Seconds,
            process.started.clone(),
        );
        process
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn note(&self, usage: &Usage) {
        // A counter of the library can only be increased, so the difference is added.
        let spent = usage.cpu_seconds - self.cpu.get();
        self.cpu.inc_by(spent.max(0.0));
        let set = |gauge: &Gauge, it: u64| gauge.set(i64::try_from(it).unwrap_or(i64::MAX));
        set(&self.resident, usage.resident_bytes);
        set(&self.r#virtual, usage.virtual_bytes);
        set(&self.open_files, usage.open_files);
        set(&self.most_files, usage.most_files);
        self.started.set(usage.started);
    }
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 12345 8192 2 18446744073709551615 1";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t     512 kB\n";
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 4096                 files     \n";
        let machine = "cpu  1 2 3\nbtime 1700000000\n";
        let expected = Usage {
            cpu_seconds: 3.0,
            resident_bytes: 524_288,
            virtual_bytes: 2_097_152,
            open_files: 0,
            most_files: 1_024,
            started: 1_700_000_123.45,
        };
        assert_eq!(Usage::of(stat, status, limits, machine), expected);
        assert_eq!(Usage::of("", "", "", ""), Usage::default());
    }

    #[test]
    fn this_process_has_usage() {
        let usage = Usage::read();
        assert!(usage.resident_bytes > 100_000, "{usage:?}");
        assert!(usage.open_files >= 3, "{usage:?}");
        assert!(usage.started > 1_600_000_000.0, "{usage:?}");
    }
}
