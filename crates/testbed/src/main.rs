//! A real Kubernetes on one machine, from the command line.

fn main() {
    println!("{}", palisade_testbed::cache().display());
}
