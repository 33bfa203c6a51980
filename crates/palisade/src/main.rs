//! The `palisade` command.

use std::process::ExitCode;

/// Returns freed memory to the system.
// An agent reads a large cluster once and then keeps little of it. The allocators of C libraries
// return the rest late or not at all: at 100,000 pods the agent would keep three times as much.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    palisade::main()
}
