// What holds a pod's namespaces open, for tests.
module palisade.dev/testbed/pause

go 1.25.0
