// Upstream's definitions of its kinds in one release, for tests: pinned here, brought by `palisade-testbed build`.
module palisade.dev/testbed/upstream

go 1.26.0

require sigs.k8s.io/network-policy-api v0.1.7
